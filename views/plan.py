"""The plan: what a view computes, as a tree of relational nodes, each knowing its typed columns.

Always: nodes are frozen; expressions hold positions of the input row; `schema` tells names, types and whether a column
can be NULL; equal plans have equal digests, whatever the names of files and places (`at`, an offset in the view's SQL,
is for messages only). Made by the binder, rewritten by the rules, read by explain and render. Names may repeat inside.
It is longer than a file should be: the nodes are one language, and a union of types that closes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import is_
from typing import Literal

from engine.operators.expressions.ir import Aggregate, ColumnRef, Expr
from engine.operators.framed import RANKS, WindowFunction
from engine.operators.spread import SetFunction
from engine.operators.top import Order
from engine.schema import BIGINT, BOOLEAN, Column, Schema
from engine.value import derived
from views.scalar import may_be_null, proved_present


class _Node:
    """What all nodes share: the nodes that they stand on, and a digest that names the computation."""

    @property
    def below(self) -> tuple[Plan, ...]:
        """The direct inputs, left to right."""
        raise NotImplementedError

    @derived
    def kinds(self) -> frozenset[type]:
        """The classes of the node and of everything below it: what a rule need not look into."""
        own: type = type(self)
        found = frozenset[type]().union(*[p.kinds for p in self.below])
        return found if own in found else found | {own}

    @derived
    def digest(self) -> str:
        """A stable hash of the node and everything below it."""
        hasher = hashlib.sha256(type(self).__name__.encode())
        for item in fields(self):  # type: ignore[arg-type]
            if not item.compare:
                continue
            value = getattr(self, item.name)
            parts = value if isinstance(value, tuple) else (value,)
            spelled = (p.digest if isinstance(p, _Node) else repr(p) for p in parts)
            hasher.update(f"|{item.name}={'|'.join(spelled)}".encode())
        return hasher.hexdigest()


class _Leaf(_Node):
    @property
    def below(self) -> tuple[Plan, ...]:
        return ()


class _Over(_Node):
    input: Plan

    @property
    def below(self) -> tuple[Plan, ...]:
        return (self.input,)


class _Beside(_Node):
    left: Plan
    right: Plan

    @property
    def below(self) -> tuple[Plan, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Scan(_Leaf):
    """A table, by its full name, with all of its columns."""

    table: str
    schema: Schema
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Import(_Leaf):
    """Another view, by name; `fingerprint` is that view's."""

    view: str
    fingerprint: str
    schema: Schema
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Project(_Over):
    """One output column an expression, named."""

    input: Plan
    exprs: tuple[Expr, ...]
    names: tuple[str, ...]

    @derived
    def schema(self) -> Schema:
        """Types and nullability of the expressions."""
        inputs = self.input.schema.columns
        return Schema(tuple(_column(n, e, inputs) for n, e in zip(self.names, self.exprs, strict=True)))


@dataclass(frozen=True)
class Filter(_Over):
    """Rows for which the predicate is true."""

    input: Plan
    predicate: Expr

    @derived
    def schema(self) -> Schema:
        """The input's, less the NULLs that the predicate rules out."""
        return _present(self.input.schema, proved_present(self.predicate))


@dataclass(frozen=True)
class Join(_Beside):
    """Left columns then right columns of every pair whose keys are equal (NULL never is) and whose residual is true.

    Fresh from the binder it has no keys and the whole condition as residual; the rules find keys and order.
    """

    left: Plan
    right: Plan
    left_key: tuple[int, ...] = ()
    right_key: tuple[int, ...] = ()
    residual: Expr | None = None
    kind: Literal["inner"] = "inner"
    at: int = field(default=0, compare=False, repr=False)

    @derived
    def schema(self) -> Schema:
        """Both sides' columns; keys and what the residual rules out are not NULL."""
        both = Schema((*self.left.schema.columns, *self.right.schema.columns))
        width = len(self.left.schema.columns)
        keys = {*self.left_key, *(width + k for k in self.right_key)}
        return _present(both, proved_present(self.residual) | keys)


@dataclass(frozen=True)
class DeltaJoin(_Over):
    """The rows of `input`, a tree of inner joins (see `views.joins`), of which nothing is kept but its leaves' arrangements."""

    input: Plan

    @property
    def schema(self) -> Schema:
        """The tree's."""
        return self.input.schema


@dataclass(frozen=True)
class LeftJoin(_Beside):
    """Left columns then right columns of every pair whose keys are equal (NULL never is) and whose residual is true,
    and the left rows without a partner, with NULL for the right columns; `full`: the right rows without one too.
    """

    left: Plan
    right: Plan
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    residual: Expr | None = None
    full: bool = False
    at: int = field(default=0, compare=False, repr=False)

    @derived
    def schema(self) -> Schema:
        """Both sides' columns; the right ones may be NULL, and the left ones of a full join."""
        right = (replace(c, nullable=True) for c in self.right.schema.columns)
        left = (replace(c, nullable=True) if self.full else c for c in self.left.schema.columns)
        return Schema((*left, *right))


@dataclass(frozen=True)
class Semijoin(_Beside):
    """The left rows whose key is among the right keys (NULL is among none); `negated`: the other left rows."""

    left: Plan
    right: Plan
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    negated: bool = False

    @derived
    def schema(self) -> Schema:
        """The left columns; a key that is among others is not NULL."""
        return _present(self.left.schema, set() if self.negated else set(self.left_key))


@dataclass(frozen=True)
class Reduce(_Over):
    """One row a group: the key columns, then the aggregates. An empty key is the one group of everything.

    The last `determined` key columns have one value for each value of the others (columns of a table by its key).
    """

    input: Plan
    key: tuple[int, ...]
    aggregates: tuple[Aggregate, ...]
    names: tuple[str, ...]
    determined: int = 0

    @derived
    def schema(self) -> Schema:
        """Key columns as in the input; of the aggregates count alone is never NULL, others where a group proves it."""
        inputs = self.input.schema.columns
        found = [replace(inputs[k], name=n) for k, n in zip(self.key, self.names, strict=False)]
        for aggregate, name in zip(self.aggregates, self.names[len(self.key) :], strict=True):
            found.append(Column(name, aggregate.type, _aggregate_may_be_null(aggregate, inputs, bool(self.key))))
        return Schema(tuple(found))


@dataclass(frozen=True)
class Distinct(_Over):
    """Each different row once."""

    input: Plan

    @derived
    def schema(self) -> Schema:
        """The input's columns."""
        return Schema(self.input.schema.columns)


@dataclass(frozen=True)
class Union(_Node):
    """All rows of all inputs, which have the same types; names are the first one's."""

    inputs: tuple[Plan, ...]

    @property
    def below(self) -> tuple[Plan, ...]:
        """All inputs."""
        return self.inputs

    @derived
    def schema(self) -> Schema:
        """The first input's columns; NULL where any input can be."""
        rows = zip(*(p.schema.columns for p in self.inputs), strict=True)
        return Schema(tuple(replace(cs[0], nullable=any(c.nullable for c in cs)) for cs in rows))


@dataclass(frozen=True)
class One(_Leaf):
    """One row, of which nothing is read: what a SELECT without FROM, and VALUES, stand on."""

    @derived
    def schema(self) -> Schema:
        """A row needs a column to be one."""
        return Schema((Column("row", BOOLEAN, nullable=False),))


@dataclass(frozen=True)
class Top(_Over):
    """Of each group (NULLs are one) the rows `offset` to `offset + limit` in the order `orders`.

    `limit` None: all behind the offset. `ties`: and the rows that `orders` cannot tell from the last one.
    """

    input: Plan
    key: tuple[int, ...]
    orders: tuple[Order, ...]
    limit: int | None
    offset: int = 0
    ties: bool = False

    @derived
    def schema(self) -> Schema:
        """The input's columns."""
        return Schema(self.input.schema.columns)


@dataclass(frozen=True)
class Repeat(_Over):
    """Each row as many times as its last column, a bigint above zero, says; without that column."""

    input: Plan

    @derived
    def schema(self) -> Schema:
        """The input's columns but the last."""
        return Schema(self.input.schema.columns[:-1])


@dataclass(frozen=True)
class Windowed(_Over):
    """Each row with what window functions say of it in its group (NULLs are one), which `orders` sort."""

    input: Plan
    key: tuple[int, ...]
    orders: tuple[Order, ...]
    functions: tuple[WindowFunction, ...]
    names: tuple[str, ...]

    @derived
    def schema(self) -> Schema:
        """The input's columns, then one a function; counts and ranks are never NULL."""
        found = [
            Column(n, f.type, f.name not in RANKS and f.name != "count")
            for n, f in zip(self.names, self.functions, strict=True)
        ]
        return Schema((*self.input.schema.columns, *found))


@dataclass(frozen=True)
class Spread(_Over):
    """Each row with each row that set functions make of it, these in step; `outer`: or once, with NULL, where there is
    none. `ordinal`: and with the number of what is made, from 1.
    """

    input: Plan
    functions: tuple[SetFunction, ...]
    names: tuple[str, ...]
    ordinal: bool = False
    outer: bool = False

    @derived
    def schema(self) -> Schema:
        """The input's columns, then the functions' and the number."""
        types = [t for f in self.functions for t in f.types]
        found = [Column(n, t) for n, t in zip(self.names, types, strict=False)]
        if self.ordinal:
            found.append(Column(self.names[-1], BIGINT, nullable=self.outer))
        return Schema((*self.input.schema.columns, *found))


Plan = (
    Scan
    | Import
    | One
    | Project
    | Filter
    | Join
    | DeltaJoin
    | LeftJoin
    | Semijoin
    | Reduce
    | Distinct
    | Union
    | Top
    | Repeat
    | Windowed
    | Spread
)


def children(plan: Plan) -> tuple[Plan, ...]:
    """The direct inputs, left to right."""
    return plan.below


def with_children(plan: Plan, inputs: Sequence[Plan]) -> Plan:
    """The node over other inputs; itself when they are the same objects."""
    if all(map(is_, plan.below, inputs)):
        return plan
    if isinstance(plan, _Beside):
        return replace(plan, left=inputs[0], right=inputs[1])
    if isinstance(plan, Union):
        return replace(plan, inputs=tuple(inputs))
    assert isinstance(plan, _Over), "a leaf has no inputs, and so is itself"
    return replace(plan, input=inputs[0])


def expressions(plan: Plan) -> tuple[Expr, ...]:
    """The expressions of the node itself, over its inputs' rows (aggregates apart: they read columns)."""
    if isinstance(plan, Project):
        return plan.exprs
    if isinstance(plan, Filter):
        return (plan.predicate,)
    return (plan.residual,) if isinstance(plan, Join | LeftJoin) and plan.residual is not None else ()


def walk(plan: Plan) -> Iterator[Plan]:
    """The node and everything below, outermost first."""
    yield plan
    for child in plan.below:
        yield from walk(child)


def identity(schema: Schema, positions: Sequence[int] | None = None) -> tuple[tuple[Expr, ...], tuple[str, ...]]:
    """Expressions and names of a projection that only picks columns."""
    at = range(len(schema.columns)) if positions is None else positions
    return tuple(ColumnRef(i, schema.columns[i].type) for i in at), tuple(schema.columns[i].name for i in at)


def keyed(plan: Plan, keys: Sequence[Expr]) -> tuple[Plan, tuple[int, ...]]:
    """The plan with a column for each key, and where these stand; the columns it has keep their places."""
    computed = list(dict.fromkeys(k for k in keys if not isinstance(k, ColumnRef)))
    width = len(plan.schema.columns)
    places = tuple(k.index if isinstance(k, ColumnRef) else width + computed.index(k) for k in keys)
    if not computed:
        return plan, places
    own, names = identity(plan.schema)
    return Project(plan, (*own, *computed), (*names, *(f"key{k}" for k in range(len(computed))))), places


def _column(name: str, expr: Expr, inputs: Sequence[Column]) -> Column:
    """What an expression over rows of `inputs` is as a column; a column that stays as it is stays that object."""
    if isinstance(expr, ColumnRef):
        column = inputs[expr.index]
        if column.name == name and column.type == expr.type:
            return column
    return Column(name, expr.type, may_be_null(expr, inputs))


def _present(schema: Schema, positions: frozenset[int] | set[int]) -> Schema:
    """The columns, of which those at `positions` are not NULL, without a key."""
    cols = tuple(
        replace(c, nullable=False) if c.nullable and i in positions else c for i, c in enumerate(schema.columns)
    )
    return Schema(cols)


def _aggregate_may_be_null(aggregate: Aggregate, inputs: Sequence[Column], grouped: bool) -> bool:
    if aggregate.function == "count":
        return False
    if not grouped or aggregate.filter is not None or aggregate.arg is None:
        return True
    return may_be_null(aggregate.arg, inputs)
