"""Nodes of a statement that sqlglot has no class for: what Postgres's grammar tells apart, and what the binder writes itself.

A node that extends one of sqlglot's is bound like it where nothing says otherwise. The grammar (`postgres_dialect`) and the
binder make them; `WRITTEN` says how messages spell them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headrace.engine.schema import DataType


class UnaryPlus(exp.Paren):
    """`+ this`: its value, without its name."""


class UnknownTruth(exp.Null):
    """UNKNOWN behind IS."""


class WholeRowColumn(exp.Column):
    """A column as part of its table's whole row, which stands as a value."""


class Search(exp.Expression):
    """SEARCH behind an item of WITH RECURSIVE: depth or breadth first, by which columns, and the column that says the order."""

    arg_types = {"depth": True, "expressions": True, "sequence": True}  # noqa: RUF012 (sqlglot's manner)

    @property
    def depth(self) -> bool:
        """Whether it is depth first."""
        return bool(self.args["depth"])

    @property
    def sequence(self) -> exp.Expr:
        """The name of the column that says the order."""
        return _node(self.args["sequence"])


class Cycle(exp.Expression):
    """CYCLE behind an item of WITH RECURSIVE: by which columns, the mark's column and its values for rows that close a cycle and
    for others, the path's column."""

    arg_types = {"expressions": True, "mark": True, "closed": True, "other": True, "path": True}  # noqa: RUF012

    @property
    def mark(self) -> exp.Expr:
        """The name of the mark's column."""
        return _node(self.args["mark"])

    @property
    def closed(self) -> exp.Expr:
        """The mark of a row that closes a cycle."""
        return _node(self.args["closed"])

    @property
    def other(self) -> exp.Expr:
        """The mark of any other row."""
        return _node(self.args["other"])

    @property
    def path(self) -> exp.Expr:
        """The name of the path's column."""
        return _node(self.args["path"])


class FieldType(exp.DataType):
    """The type of a composite type's field, known and not to be read out of its text."""

    arg_types = {**exp.DataType.arg_types, "known": True, "digits": True}  # noqa: RUF012

    @property
    def known(self) -> DataType:
        """The type."""
        found = self.args["known"]
        assert isinstance(found, DataType)
        return found

    @property
    def digits(self) -> int:
        """How many digits of its seconds a value of the field keeps."""
        return int(self.args["digits"])


def _node(part: object) -> exp.Expr:
    assert isinstance(part, exp.Expr), "the grammar puts a node there"
    return part


WRITTEN: dict[type[exp.Expr], Callable[[Any, Any], str]] = {
    UnaryPlus: lambda self, node: f"+{self.sql(node, 'this')}",
    UnknownTruth: lambda _self, _node: "UNKNOWN",
    WholeRowColumn: lambda self, node: self.column_sql(node),
    FieldType: lambda self, node: self.datatype_sql(node),
}
"""How a generator of sqlglot's writes those that messages may spell."""
