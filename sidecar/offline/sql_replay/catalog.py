"""The tables and views of a script's Postgres in our terms: what the binder's catalogue holds, and each view's query.

Always: a view is bound from the text that the script gave it as long as nothing was altered since, else from the text that
Postgres makes of it. Called by the script's run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headrace.sidecar.offline.sql_replay.change_capture import Relation
from headrace.sidecar.offline.sql_replay.statement_splitter import Statement

_NAME = r"(?:\"(?:[^\"]|\"\")+\"|[\w$]+)"
_CREATE_VIEW = re.compile(
    rf"""create\s+(?:or\s+replace\s+)?(?:(?:global\s+|local\s+)?temp(?:orary)?\s+)?view\s+
    (?P<name>{_NAME}(?:\s*\.\s*{_NAME})?)\s*
    (?P<columns>\([^()]*\)\s*)?(?:with\s*\([^()]*\)\s*)?as\b\s*
    (?P<query>.*?)(?:\s+with\s+(?:local\s+|cascaded\s+)?check\s+option)?\s*$""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def created_view(statement: Statement) -> tuple[str, str] | None:
    """Name and query of a CREATE VIEW, or None."""
    match = _CREATE_VIEW.match(statement.sql)
    if match is None or "view" not in statement.words[:5]:
        return None
    name = re.split(r"\s*\.\s*(?=[\w\"])", match["name"])[-1]
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
    query = match["query"]
    columns = match["columns"]
    return name, query if columns is None else f"select * from ({query}) as given {columns}"  # noqa: S608 (the script's)


def view_queries(relations: Iterable[Relation], given: Mapping[int, str]) -> dict[str, str]:
    """The query of each view whose name needs no schema before it. `given`: OID → the script's own text, for views that have
    one.
    """
    return {
        r.name: given.get(r.oid, (r.definition or "").strip().rstrip(";"))
        for r in relations
        if r.kind == "v" and r.visible
    }


def rebuilt(before: Mapping[int, Relation], after: Mapping[int, Relation]) -> set[int]:
    """The relations whose rows may differ from before, with their parents and children by inheritance."""
    changed = {oid for oid in before.keys() | after.keys() if _facts(before.get(oid)) != _facts(after.get(oid))}
    families = [{r.oid, *r.parents} for known in (before, after) for r in known.values() if r.parents]
    while True:
        wider = changed.union(*(f for f in families if f & changed))
        if wider == changed:
            return changed
        changed = wider


def _facts(relation: Relation | None) -> object:
    return (
        None if relation is None else (relation.full, relation.file, relation.kind, relation.schema, relation.parents)
    )
