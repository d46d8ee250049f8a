"""View files, in dbt's manner: `version: 1` and `views:`, one or several files in a folder, read strictly.

Always: names are unique over the whole folder, and a place in a view's SQL can be told as a line and column of the file
it was written in. Called by the sidecar (`validate`, `run`, `replay`) before `views.compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from views.document import ConfigError, Document, read_yaml
from views.strict import StrictModel, validate

Name = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$", max_length=63)]


class Relationship(StrictModel):
    """Every value but NULL is one of another view's, or table's, column."""

    to: str = Field(description="a view, or a table as schema.table")
    field: str = Field(description="its column")


class AcceptedValues(StrictModel):
    """Every value but NULL is one of these."""

    accepted_values: Annotated[tuple[str | int | float | bool, ...], Field(min_length=1)] = Field(
        description="the values"
    )


class Relationships(StrictModel):
    """A reference to another view or table."""

    relationships: Relationship = Field(description="what it refers to")


DataTest = Literal["unique", "not_null"] | AcceptedValues | Relationships


class ColumnSpec(StrictModel):
    """A documented column of a view."""

    name: str = Field(description="The column's name, as the view's SQL gives it")
    description: str = Field(default="", description="What the column means")
    data_tests: tuple[DataTest, ...] = Field(
        default=(), description="What must hold of its values; watched while the view runs, shown in status and metrics"
    )


class UnitTest(StrictModel):
    """What a view answers to given rows; run by `headrace test`, without any server."""

    name: str = Field(description="What the test shows")
    given: dict[str, tuple[dict[str, Any], ...]] = Field(
        default={}, description="Rows by table (schema.table) or view; what is not named is empty, a view computed"
    )
    expect: tuple[dict[str, Any], ...] | None = Field(
        default=None, description="The view's rows, in any order; only the columns named are compared"
    )
    expect_error: str | None = Field(default=None, description="Or the error that the view must be in")

    @model_validator(mode="after")
    def _one_end(self) -> UnitTest:
        if (self.expect is None) == (self.expect_error is None):
            raise ValueError("a test has either expect or expect_error")
        return self


class ViewModel(StrictModel):
    """One view of a file."""

    name: Name = Field(
        description="Lower case letters, digits and underscores: the name of table or topic in the sinks"
    )
    description: str = Field(default="", description="What the view tells")
    sql: str | None = Field(default=None, description="A SELECT in Postgres's SQL")
    sql_file: str | None = Field(default=None, description="A file with the SELECT, relative to this file's folder")
    key: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="Columns that tell rows apart; without it the key is derived from the SQL if it can be",
    )
    sinks: tuple[str, ...] = Field(default=(), description="Names of the sinks that get this view; none: helper view")
    columns: tuple[ColumnSpec, ...] = Field(default=(), description="Documentation and tests of columns")
    indexes: tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...] = Field(
        default=(), description="Columns of each index that the view's table in a Postgres sink has beside its key"
    )
    grants: tuple[str, ...] = Field(default=(), description="Roles that may read the view's table in a Postgres sink")
    tests: tuple[UnitTest, ...] = Field(default=(), description="Unit tests: given rows and the rows expected")
    tags: tuple[str, ...] = Field(default=(), description="Free labels")
    meta: dict[str, Any] = Field(default={}, description="Free values, kept and not read")

    @model_validator(mode="after")
    def _one_sql(self) -> ViewModel:
        if (self.sql is None) == (self.sql_file is None):
            raise ValueError("a view has either sql or sql_file")
        return self


class ViewsFile(StrictModel):
    """A file of views."""

    version: Literal[1] = Field(description="The version of this format")
    views: tuple[ViewModel, ...] = Field(description="The views")


@dataclass(frozen=True)
class ViewSpec:
    """A view as declared. `locate` turns an offset in `sql` into a line and column (from 1) of `file`.

    `check`: what must hold of another view, "unique of view.column"; then this one holds the rows that break it.
    `tests`: its unit tests, with their lines. `indexes`, `grants`: of its table in a Postgres sink.
    """

    name: str
    sql: str
    file: str = "<sql>"
    description: str = ""
    key: tuple[str, ...] | None = None
    sinks: tuple[str, ...] = ()
    columns: tuple[ColumnSpec, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    grants: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict, hash=False)
    line: int | None = None
    check: str = ""
    tests: tuple[tuple[UnitTest, int], ...] = field(default=(), compare=False, repr=False)
    locate: Callable[[int], tuple[int, int]] | None = field(default=None, compare=False, repr=False)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of a character of the SQL."""
        return self.locate(offset) if self.locate is not None else line_and_column(self.sql, offset)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    r"""Line and column, from 1, of the character at `offset`.

    >>> line_and_column("a\nbc", 3)
    (2, 2)
    """
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def load(path: Path) -> tuple[ViewSpec, ...]:
    """The views of a file, or of every `*.yaml` and `*.yml` below a folder, in order of path, then of writing.

    Raises ConfigError for the first mistake, and for a name used twice.
    """
    if path.is_dir():
        files: Sequence[Path] = sorted(f for f in path.rglob("*") if f.suffix in (".yaml", ".yml") and f.is_file())
    elif path.is_file():
        files = [path]
    else:
        raise ConfigError("no such file or folder of views", file=path, hint="set `views:` to a folder of YAML files")
    specs: dict[str, ViewSpec] = {}
    for file in files:
        document = read_yaml(file, interpolate=False, env={})
        for index, model in enumerate(validate(document, ViewsFile).views):
            spec = _spec(document, index, model)
            for check in checks_of(spec):
                specs.setdefault(check.name, check)
            first = specs.setdefault(spec.name, spec)
            if first is not spec:
                place = document.place(("views", index, "name"))
                raise ConfigError(
                    f"view {spec.name} is declared twice, first in {first.file} line {first.line}",
                    file=file,
                    line=place.line,
                    field=f"views[{index}].name",
                    hint="rename one of them",
                )
    return tuple(specs.values())


def _spec(document: Document, index: int, model: ViewModel) -> ViewSpec:
    trail = ("views", index, "sql")
    text, file = model.sql or "", document.path
    locate: Callable[[int], tuple[int, int]] | None = None
    if model.sql_file is None:

        def locate(offset: int) -> tuple[int, int]:
            return document.locate(trail, offset)

    else:
        file = document.path.parent / model.sql_file
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            line = document.place(("views", index, "sql_file")).line
            field_name = f"views[{index}].sql_file"
            what = f"cannot read {file}: {reason}"
            raise ConfigError(what, file=document.path, line=line, field=field_name, value=model.sql_file) from None
    return ViewSpec(
        name=model.name,
        sql=text,
        file=str(file),
        description=model.description,
        key=model.key,
        sinks=model.sinks,
        columns=model.columns,
        indexes=model.indexes,
        grants=model.grants,
        tags=model.tags,
        meta=model.meta,
        line=document.place(("views", index)).line,
        tests=tuple((t, document.place(("views", index, "tests", i)).line) for i, t in enumerate(model.tests)),
        locate=locate,
    )


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
