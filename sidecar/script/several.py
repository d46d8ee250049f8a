"""Whether Postgres itself has several answers to a SELECT: it is asked again with the rows of its tables in other orders.

Always: nothing is left of it; the session's transaction goes on as it was. Called where an answer of ours differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sidecar.script.capture import Relation, quoted
from sidecar.script.session import Failure, Result, Session

_PLANS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("random()", ()),
    ("ctid desc", ("enable_hashagg", "enable_hashjoin")),
    ("random()", ("enable_sort", "enable_indexscan", "enable_mergejoin")),
    *(("random()", ()),) * 5,
)


def several(session: Session, sql: str, tables: Sequence[Relation]) -> Iterator[Result | Failure]:
    """Postgres's answers to `sql` with the rows of `tables` in some other orders, and by other plans."""
    for order, avoided in _PLANS:
        inside = not session.idle
        session.run("savepoint headrace" if inside else "begin")
        try:
            for setting in avoided:
                session.run(f"set local {setting} = off")
            made = [session.run(step) for table in tables for step in _copied(table, order)]
            if not any(isinstance(m, Failure) for m in made):
                yield session.run(sql)
        finally:
            session.run("rollback to headrace" if inside else "rollback")
            if inside:
                session.run("release headrace")


def _copied(table: Relation, order: str) -> tuple[str, ...]:
    """A temporary table that hides `table`, with its rows in another order; a temporary one gives its name up."""
    name = '"' + table.name.replace('"', '""') + '"'
    old, before = quoted(table), []
    if table.schema_name.startswith("pg_temp"):
        old, before = "pg_temp.headrace_old", [f"alter table {old} rename to headrace_old"]
    ordered = order if table.kind != "p" else "random()"
    return *before, f"create temporary table {name} as select * from {old} order by {ordered}"  # noqa: S608 (quoted names)
