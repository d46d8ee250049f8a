"""A file of views as it is written, in dbt's manner: `version: 1` and `views:`, strict.

The models check each declaration by itself; `view_files` reads files and makes a `ViewSpec` of each view. The JSON Schema for
editors is made of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from headrace.views.limits import FreshnessLimits, Limits, Unstratified
from headrace.views.yaml_models import StrictModel

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


Strategy = Literal["auto", "update", "bootstrap", "history"]


class RecursionModel(StrictModel):
    """How a recursive query or program follows a change of what it reads."""

    strategy: Strategy = Field(
        default="auto",
        description="`update` follows each change, `bootstrap` begins anew, `auto` takes the one that costs less, `history` "
        "keeps every round; where a recursion cannot be kept by state it is always `history`, which explain tells",
    )
    switch: float | None = Field(
        default=None,
        gt=0,
        le=10,
        description="Of `auto`: the part of the work of beginning anew past which following a change is given up; without it "
        "an eighth, and more for each round that is over, as to begin anew goes on from these",
    )


FOLLOWED = RecursionModel()
"""How a recursion follows changes unless its view says otherwise."""


class OutputModel(StrictModel):
    """One relation that a Datalog program puts out, or one of its constraints; what it does not say is the program's."""

    description: str = Field(default="", description="What the view tells")
    key: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None, description="Columns that tell rows apart; without it all columns, or fewer where that is proved"
    )
    sinks: tuple[str, ...] | None = Field(default=None, description="Names of the sinks that get this view")
    columns: tuple[ColumnSpec, ...] = Field(default=(), description="Documentation and tests of columns")
    indexes: tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...] = Field(
        default=(), description="Columns of each index that the view's table in a Postgres sink has beside its key"
    )
    grants: tuple[str, ...] | None = Field(
        default=None, description="Roles that may read the view's table in a Postgres sink"
    )
    tests: tuple[UnitTest, ...] = Field(default=(), description="Unit tests: given rows and the rows expected")


class ViewModel(StrictModel):
    """One view of a file, or one Datalog program, which has a view for each relation that it puts out."""

    name: Name = Field(
        description="Lower case letters, digits and underscores: the name of table or topic in the sinks"
    )
    description: str = Field(default="", description="What the view tells")
    sql: str | None = Field(default=None, description="A SELECT in Postgres's SQL")
    sql_file: str | None = Field(default=None, description="A file with the SELECT, relative to this file's folder")
    datalog: str | None = Field(
        default=None, description="Rules in Datalog: a program, each output of which is the view NAME_OUTPUT"
    )
    datalog_file: str | None = Field(
        default=None, description="A file with the program, relative to this file's folder"
    )
    outputs: dict[str, OutputModel] = Field(
        default={},
        description="Of a program: more about each relation that it puts out, and of each constraint, by name",
    )
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
    limits: Limits = Field(default=Limits(), description="What the view may take before it is in error")
    recursion: RecursionModel = Field(default=FOLLOWED, description="How a recursive query or program follows changes")
    freshness: FreshnessLimits | None = Field(
        default=None,
        description="How old it may become; unless given 10 s and 60 s where its source sends heartbeats, else no limit",
    )
    unstratified: Unstratified | None = Field(
        default=None,
        description="Of a program: relations that negate or aggregate themselves are made in rounds from nothing, as this says",
    )
    tags: tuple[str, ...] = Field(default=(), description="Free labels")
    meta: dict[str, Any] = Field(default={}, description="Free values, kept and not read")

    @model_validator(mode="after")
    def _one_sql(self) -> ViewModel:
        given = [self.sql, self.sql_file, self.datalog, self.datalog_file]
        if sum(text is not None for text in given) != 1:
            raise ValueError("a view has either sql or sql_file, or datalog or datalog_file")
        if not self.is_program and self.outputs:
            raise ValueError("outputs are of a program in datalog; say it of the view itself")
        if not self.is_program and self.unstratified is not None:
            raise ValueError("unstratified is of a program in datalog; a query in SQL counts its rounds by itself")
        told = [k for k in ("key", "columns", "indexes", "tests") if getattr(self, k)]
        if self.is_program and told:
            raise ValueError(f"{told[0]} is of one output of a program: write it under outputs: NAME:")
        return self

    @property
    def is_program(self) -> bool:
        """Whether it is a Datalog program."""
        return self.datalog is not None or self.datalog_file is not None


class ViewsFile(StrictModel):
    """A file of views."""

    version: Literal[1] = Field(description="The version of this format")
    views: tuple[ViewModel, ...] = Field(description="The views")
