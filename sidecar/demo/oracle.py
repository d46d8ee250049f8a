"""Postgres's own answers at an exact position: the exported snapshot of a temporary logical slot (DECISIONS.md 25).

Always: an answer at LSN L sees exactly the transactions whose commit record ends at or before L. Called by the demo, by
`tests` and by the freshness checker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Answer:
    """The rows of one view as Postgres prints them, each with its multiplicity."""

    lsn: int
    rows: Counter[Row]
    columns: tuple[str, ...]


def lsn_number(text: str) -> int:
    """Postgres's X/Y as a number.

    >>> lsn_number("1/10")
    4294967312
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


@contextmanager
def snapshot(url: str, name: str) -> Iterator[tuple[int, psycopg.Connection]]:
    """An LSN and a read-only connection that sees the database exactly as of it."""
    with psycopg.connect(url, autocommit=True, replication="database", cursor_factory=psycopg.ClientCursor) as slot:
        found = slot.execute(
            sql.SQL("CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')").format(
                sql.Identifier(name)
            )
        ).fetchone()
        assert found is not None, "the command answers with one row"
        with psycopg.connect(url) as db:
            db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            db.read_only = True
            db.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(found[2])))
            yield lsn_number(found[1]), db
            db.rollback()


def answers(
    db: psycopg.Connection, lsn: int, queries: Mapping[str, str], settings: Mapping[str, str]
) -> dict[str, Answer]:
    """Each query's rows as text. `settings`: session settings for the transaction."""
    for key, value in settings.items():
        db.execute("select set_config(%s, %s, true)", (key, value))
    out = {}
    for name, query in queries.items():
        described = db.execute(f"select * from ({query}) as v limit 0").description or []  # noqa: S608 (the demo's own)
        columns = tuple(c.name for c in described)
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(c)) for c in columns)
        rows = db.execute(sql.SQL("select {} from ({}) as v").format(texts, sql.SQL(query))).fetchall()
        out[name] = Answer(lsn, Counter(rows), columns)
    return out
