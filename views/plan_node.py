"""What all nodes of a plan share: inputs, a digest that names the computation, and the columns that follow from expressions.

Invariant: a tag never changes and is never given to another class, or every state and every sink is filled anew. `plan` defines
the nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.engine.encoding import Encoder
from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef, Expr
from headrace.engine.operators.tags import TAGS
from headrace.engine.schema import Column, Schema
from headrace.engine.value import derived
from headrace.views.expressions import may_be_null


@dataclass(frozen=True)
class Variable:
    """A variable of a recursion: its name, and how many recursions around it there are at most. Unlike any other that is in
    sight where it is.
    """

    name: str
    level: int


class PlanNode:
    """What all nodes share: the nodes that they stand on, and a digest that names the computation."""

    def __init_subclass__(cls, tag: str | None = None) -> None:
        """`tag`: what fingerprints call the class; a class without one has no instances."""
        super().__init_subclass__()
        if tag is not None:
            ENCODER.add(cls, tag)

    @property
    def below(self) -> tuple[PlanNode, ...]:
        """The direct inputs, left to right."""
        raise NotImplementedError

    @derived
    def kinds(self) -> frozenset[type]:
        """The classes of the node and of everything below it: what a rule need not look into."""
        own: type = type(self)
        found = frozenset[type]().union(*[p.kinds for p in self.below])
        return found if own in found else found | {own}

    @derived
    def free(self) -> frozenset[Variable]:
        """The variables of recursions around the plan that it reads."""
        return frozenset[Variable]().union(*[p.free for p in self.below])

    @derived
    def digest(self) -> str:
        """A stable hash of the node and everything below it: of tags and values, and of no name in Python."""
        return hashlib.sha256(ENCODER.encode_fields(self).encode()).hexdigest()


ENCODER = Encoder({**TAGS, Variable: "variable"}, digested=PlanNode)
"""What digests are made of."""


def column_of(name: str, expr: Expr, inputs: Sequence[Column]) -> Column:
    """What an expression over rows of `inputs` is as a column; a column that stays as it is stays that object."""
    if isinstance(expr, ColumnRef):
        column = inputs[expr.index]
        if column.name == name and column.type == expr.type:
            return column
    return Column(name, expr.type, may_be_null(expr, inputs))


def present(schema: Schema, positions: frozenset[int] | set[int]) -> Schema:
    """The columns, of which those at `positions` are not NULL, without a key."""
    cols = tuple(
        replace(c, nullable=False) if c.nullable and i in positions else c for i, c in enumerate(schema.columns)
    )
    return Schema(cols)


def aggregate_may_be_null(aggregate: Aggregate, inputs: Sequence[Column], *, grouped: bool) -> bool:
    """Whether an aggregate over rows of `inputs` can be NULL; `grouped`: a group has a row."""
    if aggregate.function == "count":
        return False
    if not grouped or aggregate.filter is not None or aggregate.arg is None:
        return True
    return may_be_null(aggregate.arg, inputs)
