"""Data tests of a view's columns, as views of the rows that break them: each of these must be empty.

`view_files` adds them to the views that are declared.
"""

from __future__ import annotations

from headrace.views.spec import ViewSpec
from headrace.views.view_models import AcceptedValues, DataTest, Relationships


def checks_of(spec: ViewSpec) -> tuple[ViewSpec, ...]:
    """The views of rows that break what must hold of a view's columns; each must be empty."""
    found = []
    for column in spec.columns:
        for test in column.data_tests:
            kind, sql = _failing(spec.name, column.name, test)
            name = f"{spec.name}.{column.name}.{kind}"
            check = f"{kind} of {spec.name}.{column.name}"
            found.append(ViewSpec(name=name, sql=sql, file=spec.file, line=spec.line, check=check))
    return tuple(found)


def _failing(view: str, column: str, test: DataTest) -> tuple[str, str]:
    """The kind of a data test, and the SELECT of the rows that break it."""
    of, value = _quoted(view), _quoted(column)
    if test == "not_null":
        return "not_null", f"SELECT count(*) AS n FROM {of} WHERE {value} IS NULL HAVING count(*) > 0"  # noqa: S608 (quoted)
    counted = f"SELECT {value}, count(*) AS n FROM {of} AS v WHERE {value} IS NOT NULL"  # noqa: S608 (quoted)
    if test == "unique":
        return "unique", f"{counted} GROUP BY {value} HAVING count(*) > 1"
    if isinstance(test, AcceptedValues):
        listed = ", ".join(_literal(v) for v in test.accepted_values)
        return "accepted_values", f"{counted} AND {value} NOT IN ({listed}) GROUP BY {value}"
    assert isinstance(test, Relationships), "there are four kinds"
    to = ".".join(_quoted(part) for part in test.relationships.to.split("."))
    other = f"SELECT 1 AS one FROM {to} AS o WHERE o.{_quoted(test.relationships.field)} = v.{value}"  # noqa: S608 (quoted)
    return "relationships", f"{counted} AND NOT EXISTS ({other}) GROUP BY {value}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
