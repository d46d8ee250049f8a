"""Transactions over a few hot rows: `python -m tests.hostile.traffic RATE SEED` until SIGTERM.

Every transaction changes several rows of `hot`; now and then a row of `settings`; once in `RELOAD` seconds `loads` is
truncated and loaded anew. Called by the hostile run.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import psycopg

from examples.demo.shop import URL

HOT, SETTINGS, LOADS = 40, 4, 400
RELOAD = 60.0
DDL = f"""
create table hot (id bigint primary key, kind bigint not null, n bigint not null);
create table settings (id bigint primary key, rate numeric(8,4) not null);
create table loads (id bigint primary key, v bigint not null);
insert into hot select i, i % {SETTINGS} + 1, 0 from generate_series(1, {HOT}) i;
insert into settings select i, 1 from generate_series(1, {SETTINGS}) i;
insert into loads select i, i from generate_series(1, {LOADS}) i;
"""
TABLES = ("public.hot", "public.settings", "public.loads")


def transact(db: psycopg.Connection, draw: random.Random) -> None:
    """One transaction of seven changes."""
    with db.pipeline(), db.transaction(), db.cursor() as cursor:
        for _ in range(6):
            cursor.execute(
                "update hot set n = n + %s where id = %s", (draw.randrange(1, 5), draw.randrange(1, HOT + 1))
            )
        if draw.random() < 0.2:
            cursor.execute(
                "update settings set rate = %s where id = %s", (draw.random(), draw.randrange(1, SETTINGS + 1))
            )
        else:
            cursor.execute("update loads set v = v + 1 where id = %s", (draw.randrange(1, LOADS + 1),))


def reload(db: psycopg.Connection) -> None:
    """Truncate a table and load it anew, in one transaction."""
    with db.transaction():
        db.execute("truncate loads")
        db.execute("insert into loads select i, i from generate_series(1, %s) i", (LOADS,))


def main(url: str, rate: float, seed: int) -> int:
    """Write `rate` transactions a second until SIGTERM; returns how many."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    draw, done = random.Random(seed), 0
    with psycopg.connect(url) as db:
        begin = loaded = time.monotonic()
        while not stopping:
            if time.monotonic() - loaded > RELOAD:
                reload(db)
                loaded = time.monotonic()
            transact(db, draw)
            done += 1
            ahead = begin + done / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            elif ahead < -5:
                begin = time.monotonic() - done / rate
    sys.stdout.write(f"{done}\n")
    return done


if __name__ == "__main__":
    main(os.environ[URL], float(sys.argv[1]), int(sys.argv[2]))
