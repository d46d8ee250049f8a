"""Whether Postgres itself has several answers to a SELECT: it is asked again with the rows of its tables in other orders.

Always: nothing is left of it; the session's transaction goes on as it was. Called where an answer of ours differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.sidecar.offline.sql_replay.change_capture import Relation, quoted
from headrace.sidecar.offline.sql_replay.session import Failure, Result, Session

_PLANS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("random()", ()),
    ("ctid desc", ("enable_hashagg", "enable_hashjoin")),
    ("random()", ("enable_sort", "enable_indexscan", "enable_mergejoin")),
    *(("random()", ()),) * 5,
)


def several(
    session: Session, sql: str, tables: Sequence[Relation], views: Sequence[Relation] = ()
) -> Iterator[Result | Failure]:
    """Postgres's answers to `sql` with the rows of `tables` in some other orders, and by other plans. `views`: those of the
    script, of which the ones that the SELECT names read these rows too.
    """
    named = _named(sql, views)
    for order, avoided in _PLANS:
        inside = not session.idle
        session.run("savepoint headrace" if inside else "begin")
        try:
            for setting in avoided:
                session.run(f"set local {setting} = off")
            made = [session.run(step) for table in tables for step in _copied(table, order)]
            # A view stays bound to the table that a name meant when it was made.
            made += [session.run(f"create temporary view {_own_name(v)} as {v.definition}") for v in named]
            if not any(isinstance(m, Failure) for m in made):
                yield session.run(sql)
        finally:
            session.run("rollback to headrace" if inside else "rollback")
            if inside:
                session.run("release headrace")


def _named(sql: str, views: Sequence[Relation]) -> list[Relation]:
    """The views that stand in a text, and those that stand in theirs: each before those that read it."""
    found: dict[int, Relation] = {}
    texts = [sql]
    while texts:
        text = texts.pop().lower()
        for view in views:
            if view.definition and view.visible and view.oid not in found and view.name.lower() in text:
                found[view.oid] = view
                texts.append(view.definition)
    return [found[oid] for oid in sorted(found)]


def _own_name(relation: Relation) -> str:
    return '"' + relation.name.replace('"', '""') + '"'


def _copied(table: Relation, order: str) -> tuple[str, ...]:
    """Hide `table` behind a temporary table with the same rows in another order. A table that is temporary itself is renamed."""
    name = _own_name(table)
    old, before = quoted(table), []
    if table.schema_name.startswith("pg_temp"):
        old, before = "pg_temp.headrace_old", [f"alter table {old} rename to headrace_old"]
    ordered = order if table.kind != "p" else "random()"
    return *before, f"create temporary table {name} as select * from {old} order by {ordered}"  # noqa: S608 (quoted names)
