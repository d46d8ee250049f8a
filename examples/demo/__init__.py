"""`make demo`: the whole channel on embedded real parts, watched live and compared with Postgres's own answers."""
