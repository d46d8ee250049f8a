"""Typed expressions over a row's columns: what the binder makes, and what `evaluate` computes over Arrow columns.

Always: every node knows its Postgres type; all coercions are explicit `Cast` nodes; functions are resolved to one
entry of the catalogue (`functions`), so that evaluation never guesses. Nodes are frozen and hashable, and have
tags in `headrace.engine.operators.tags`, so that plans can be fingerprinted.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.schema import DataType
from headrace.engine.value import hashed_once

Value = bool | int | float | str | bytes | None
"""A literal in Python: NUMERIC, DATE, TIME, TIMESTAMP(TZ), UUID, JSON and OTHER values are their Postgres image."""


@hashed_once
@dataclass(frozen=True)
class ColumnRef:
    """The input's column at `index`."""

    index: int
    type: DataType


@hashed_once
@dataclass(frozen=True)
class Literal:
    """A constant; `value` None is SQL's NULL."""

    value: Value
    type: DataType


@hashed_once
@dataclass(frozen=True)
class Call:
    """A function or operator of the catalogue by its resolved name; `args` already have its parameter types."""

    function: str
    args: tuple[Expr, ...]
    type: DataType


@hashed_once
@dataclass(frozen=True)
class Cast:
    """`arg` converted as Postgres's CAST does. `implicit` is for messages only."""

    arg: Expr
    type: DataType
    implicit: bool = False


@hashed_once
@dataclass(frozen=True)
class Case:
    """CASE WHEN condition THEN value … ELSE otherwise END; an error in a branch that is not taken does not count."""

    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    type: DataType


@hashed_once
@dataclass(frozen=True)
class Coalesce:
    """The first argument that is not NULL; later ones are not evaluated for that row."""

    args: tuple[Expr, ...]
    type: DataType


Expr = ColumnRef | Literal | Call | Cast | Case | Coalesce


@hashed_once
@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a reduce.

    `function`: count, sum, avg, min, max, bool_and, bool_or; `arg` None is count(*). `distinct` and `filter` as in SQL.
    `type` is the result's, after Postgres's rules (sum(integer) is bigint, sum(bigint) is numeric with scale 0 …).
    """

    function: str
    arg: Expr | None
    type: DataType
    distinct: bool = False
    filter: Expr | None = None
