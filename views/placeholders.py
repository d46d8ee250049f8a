"""Placeholders: they stand in an expression for a value that has no column until its query is bound.

The binder makes placeholders, and the clause that computes such a value puts a column in the placeholder's place; an outer
column is replaced when its subquery is turned into a join. Invariant: no finished plan holds one: fingerprints have no tag
for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.engine.operators.expressions.core.ir import Call
from headrace.engine.value import hashed_once


@hashed_once
@dataclass(frozen=True)
class Placeholder(Call):
    """A value that is computed later, of `args`: a call without a function."""

    function: str = field(default="", init=False, repr=False)


@hashed_once
@dataclass(frozen=True)
class OuterColumn(Placeholder):
    """Column `index` of the row of the query `level` levels up; `args` is empty."""

    level: int
    index: int


@hashed_once
@dataclass(frozen=True)
class AggregateValue(Placeholder):
    """The value of the SELECT's aggregate `number` in the row's group; `args` is empty."""

    number: int


@hashed_once
@dataclass(frozen=True)
class GroupingValue(Placeholder):
    """What the SELECT's `grouping(…)` `number` says of the row's grouping set; `args` is empty."""

    number: int


@hashed_once
@dataclass(frozen=True)
class SubqueryValue(Placeholder):
    """The answer of the SELECT's subquery `number`; `args`: the operands that it is compared with, then what it reads."""

    number: int


@hashed_once
@dataclass(frozen=True)
class WindowValue(Placeholder):
    """The value of the SELECT's window function `number`; `args`: its arguments, then its partition, then its order."""

    number: int


@hashed_once
@dataclass(frozen=True)
class SetValue(Placeholder):
    """One of the values that the SELECT list's set-returning function `number` makes of `args`."""

    number: int
