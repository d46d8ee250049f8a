"""Typed expressions over Arrow columns, answered as Postgres answers them: `resolve`, `evaluate`, `images`."""
