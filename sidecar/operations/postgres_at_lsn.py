"""Postgres's own answers at an exact position: the exported snapshot of a temporary logical slot (decision 25), and what
a Postgres sink holds, to be compared with them.

Always: an answer at LSN L sees exactly the transactions whose commit record ends at or before L; a sink is read in one
snapshot. Called by the audit, the demo and `tests`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from headrace.connectors.commit_place import place_of
from headrace.connectors.lsn import lsn_number
from headrace.engine.schema import Column, Kind
from headrace.views.compile import CompiledView
from headrace.views.sql.parsing.parse import body_of, unqualified

_FLOATS = (Kind.REAL, Kind.DOUBLE)
Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Answer:
    """The rows of one view as Postgres prints them, each with its multiplicity."""

    lsn: int
    rows: Counter[Row]
    columns: tuple[str, ...]


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


def normal(columns: Sequence[Column], rows: Counter[Row]) -> Counter[Row]:
    """Postgres's texts with floats in one spelling."""
    at = [i for i, c in enumerate(columns) if c.type.kind in _FLOATS]
    if not at:
        return rows
    out: Counter[Row] = Counter()
    for row, count in rows.items():
        cells = list(row)
        for i in at:
            cells[i] = None if cells[i] is None else repr(float(cells[i] or 0))
        out[tuple(cells)] += count
    return out


def read_sink(
    db: psycopg.Connection, schema: str, sink: str, views: Sequence[CompiledView]
) -> tuple[int, dict[str, int], dict[str, Counter[Row]]]:
    """The Postgres sink in one snapshot: its epoch, the order of each source's place, each view's rows."""
    with db.transaction():
        db.execute("set transaction isolation level repeatable read, read only")
        found = db.execute(
            sql.SQL("select epoch, sources from {} where sink = %s").format(sql.Identifier(schema, "frontier")), (sink,)
        ).fetchone()
        epoch = 0 if found is None or found[0] is None else int(found[0])
        lsns = {} if found is None else {n: place_of(s).order for n, s in found[1].items()}
        rows = {v.name: _sink_rows(db, schema, v) for v in views}
    return epoch, lsns, rows


def sink_lsn(db: psycopg.Connection, schema: str, sink: str, source: str) -> int:
    """Up to which LSN of `source` a Postgres sink reflects it; -1 for none."""
    with db.transaction():
        found = db.execute(
            sql.SQL("select sources -> %s ->> 'lsn' from {} where sink = %s").format(
                sql.Identifier(schema, "frontier")
            ),
            (source, sink),
        ).fetchone()
    return -1 if found is None else lsn_number(found[0])


def sink_errors(db: psycopg.Connection, schema: str, sink: str) -> frozenset[str]:
    """The views of a Postgres sink that are marked as in error."""
    with db.transaction():
        found = db.execute(
            sql.SQL("select name from {} where sink = %s and error is not null").format(sql.Identifier(schema, "view")),
            (sink,),
        ).fetchall()
    return frozenset(name for (name,) in found)


def _sink_rows(db: psycopg.Connection, schema: str, view: CompiledView) -> Counter[Row]:
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(c.name)) for c in view.schema.columns)
    query = sql.SQL("select {} from {}").format(texts, sql.Identifier(schema, view.name))
    return normal(view.schema.columns, Counter(db.execute(query).fetchall()))


def with_views(views: Sequence[CompiledView]) -> dict[str, str]:
    """Each view's SQL, with the views that it reads put in front as CTEs, so that Postgres can answer it alone."""
    texts = {v.name: v.spec.sql for v in views}
    reads = {v.name: v.reads for v in views}
    return {v.name: alone(v.name, texts, reads)[0] for v in views}


def alone(name: str, texts: Mapping[str, str], reads: Mapping[str, Sequence[str]]) -> tuple[str, int]:
    """One view's SQL with the views that it reads put in front as CTEs, and where in that its own SQL begins."""
    needed: dict[str, str] = {}
    views = {r for some in reads.values() for r in some}

    def text_of(at: str) -> str:
        return body_of(unqualified(texts[at], views) if views else texts[at])

    def gather(at: str, path: tuple[str, ...]) -> None:
        for read in reads[at]:
            if read not in path:
                gather(read, (*path, read))
                needed.setdefault(read, text_of(read))

    gather(name, (name,))
    if not needed:
        return text_of(name), 0
    # The line break ends a comment that a text may end in.
    ctes = ", ".join(f'"{n}" as ({text}\n)' for n, text in needed.items())
    head = f"with {ctes} select * from ("  # noqa: S608 (the views' own)
    return f"{head}{text_of(name)}\n) as the_view", len(head)
