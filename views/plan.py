"""The plan: what a view computes, as a tree of relational nodes, each knowing its typed columns.

Always: nodes are frozen; expressions hold positions of the input row; `schema` tells names, types and whether a column
can be NULL; equal plans have equal digests, whatever the names of files and places (`at`, an offset in the view's SQL,
is for messages only). The binder makes a plan, the rules rewrite it, explain and render read it. Names may repeat inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef, Expr
from headrace.engine.operators.table_functions import SetFunction
from headrace.engine.operators.top import Order
from headrace.engine.operators.window_values import RANKS, WindowFunction
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema
from headrace.engine.value import derived
from headrace.views.expressions import proved_present
from headrace.views.limits import MOST_ROWS
from headrace.views.plan_node import PlanNode, Variable, aggregate_may_be_null, column_of, present


class Leaf(PlanNode):
    """A node without inputs."""

    @property
    def below(self) -> tuple[Plan, ...]:
        """None."""
        return ()


class OverOne(PlanNode):
    """A node over one input."""

    input: Plan

    @property
    def below(self) -> tuple[Plan, ...]:
        """The input."""
        return (self.input,)


class OverTwo(PlanNode):
    """A node over a left and a right input."""

    left: Plan
    right: Plan

    @property
    def below(self) -> tuple[Plan, ...]:
        """Left, then right."""
        return (self.left, self.right)


@dataclass(frozen=True)
class Scan(Leaf, tag="scan"):
    """A table, by its full name, with all of its columns."""

    table: str
    schema: Schema
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Import(Leaf, tag="import"):
    """Another view, by name; `fingerprint` is that view's."""

    view: str
    fingerprint: str
    schema: Schema
    at: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True)
class Project(OverOne, tag="project"):
    """One output column an expression, named."""

    input: Plan
    exprs: tuple[Expr, ...]
    names: tuple[str, ...]

    @derived
    def schema(self) -> Schema:
        """Types and nullability of the expressions."""
        inputs = self.input.schema.columns
        return Schema(tuple(column_of(n, e, inputs) for n, e in zip(self.names, self.exprs, strict=True)))


@dataclass(frozen=True)
class Filter(OverOne, tag="filter"):
    """Rows for which the predicate is true."""

    input: Plan
    predicate: Expr

    @derived
    def schema(self) -> Schema:
        """The input's, less the NULLs that the predicate rules out."""
        return present(self.input.schema, proved_present(self.predicate))


@dataclass(frozen=True)
class Join(OverTwo, tag="join"):
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
        return present(both, proved_present(self.residual) | keys)


@dataclass(frozen=True)
class DeltaJoin(OverOne, tag="delta join"):
    """The rows of `input`, a tree of inner joins (see `headrace.views.join_graph`), of which nothing is kept but its
    leaves' arrangements."""

    input: Plan

    @property
    def schema(self) -> Schema:
        """The tree's."""
        return self.input.schema


@dataclass(frozen=True)
class LeftJoin(OverTwo, tag="left join"):
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
class Semijoin(OverTwo, tag="semijoin"):
    """The left rows whose key is among the right keys (NULL is among none); `negated`: the other left rows."""

    left: Plan
    right: Plan
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    negated: bool = False

    @derived
    def schema(self) -> Schema:
        """The left columns; a key that is among others is not NULL."""
        return present(self.left.schema, set() if self.negated else set(self.left_key))


@dataclass(frozen=True)
class Reduce(OverOne, tag="reduce"):
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
            found.append(Column(name, aggregate.type, aggregate_may_be_null(aggregate, inputs, grouped=bool(self.key))))
        return Schema(tuple(found))


@dataclass(frozen=True)
class Distinct(OverOne, tag="distinct"):
    """Each different row once."""

    input: Plan

    @derived
    def schema(self) -> Schema:
        """The input's columns."""
        return Schema(self.input.schema.columns)


@dataclass(frozen=True)
class Union(PlanNode, tag="union"):
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
class One(Leaf, tag="one"):
    """One row, of which nothing is read: what a SELECT without FROM, and VALUES, stand on."""

    @derived
    def schema(self) -> Schema:
        """A row needs a column to be one."""
        return Schema((Column("row", BOOLEAN, nullable=False),))


@dataclass(frozen=True)
class Top(OverOne, tag="top"):
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
class Repeat(OverOne, tag="repeat"):
    """Each row as many times as its last column, a bigint above zero, says; without that column."""

    input: Plan

    @derived
    def schema(self) -> Schema:
        """The input's columns but the last."""
        return Schema(self.input.schema.columns[:-1])


@dataclass(frozen=True)
class Windowed(OverOne, tag="windowed"):
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
class Spread(OverOne, tag="spread"):
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


@dataclass(frozen=True)
class Reference(Leaf, tag="reference"):
    """A variable of a recursion around, as it was made in the round before."""

    variable: Variable
    schema: Schema

    @derived
    def free(self) -> frozenset[Variable]:
        """The variable."""
        return frozenset({self.variable})


@dataclass(frozen=True)
class Recursion(PlanNode, tag="recursion"):
    """A group of variables that are made round after round until no round brings anything new; one of them is the rows.

    In the first round each holds what its start gives, or nothing without one, and after each what its rule makes of the
    variables as they stand. The rows are what the rule of the variable `shown` makes in the last round. `kinds_of`: whether a
    variable is a sum of rows, a set of them, or the working table of each round alone. `why`: what keeps the recursion from
    being a fixpoint, so that its rounds count; empty for a fixpoint. `rounds`: after so many it is taken not to end; `rows`: with
    more in one variable likewise. `at_limit`: whether the rows of the last round that may be are the answer then. `name`: of the
    query, for messages.
    """

    name: str
    variables: tuple[Variable, ...]
    kinds_of: tuple[Literal["sum", "set", "working table"], ...]
    starts: tuple[Plan | None, ...]
    rules: tuple[Plan, ...]
    rounds: int
    why: str = ""
    rows: int = MOST_ROWS
    at_limit: Literal["error", "return"] = "error"
    shown: int = 0

    @property
    def below(self) -> tuple[Plan, ...]:
        """The starts that there are, then the rules."""
        return (*(p for p in self.starts if p is not None), *self.rules)

    @derived
    def free(self) -> frozenset[Variable]:
        """What its parts read, less its own variables."""
        within = frozenset[Variable]().union(*[p.free for p in self.rules]) - frozenset(self.variables)
        return within.union(*[p.free for p in self.starts if p is not None])

    @property
    def schema(self) -> Schema:
        """The columns of the rule of the variable that is shown, without a key."""
        return Schema(self.rules[self.shown].schema.columns)


Plan = (
    Scan | Import | One | Project | Filter | Join | DeltaJoin | LeftJoin | Semijoin | Reduce | Distinct | Union | Top | Repeat
    | Windowed | Spread | Reference | Recursion
)  # fmt: skip
"""Any node: a rule that looks at all of them is checked to."""


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
