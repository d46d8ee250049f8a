"""Collections: plans as values, built of one another and shared where they are equal.

Always: a collection is a pair (rows, errors), both retractable; building the same plan twice gives the same nodes;
renaming columns makes no node. Called by `headrace.views.render` and the sidecar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.antijoin import AntijoinNode
from headrace.engine.dataflow.arrange import TableNode
from headrace.engine.dataflow.count import CountNode
from headrace.engine.dataflow.graph import Graph, own_key
from headrace.engine.dataflow.grouped import GroupedNode, LoopGroupsNode
from headrace.engine.dataflow.join import JoinNode
from headrace.engine.dataflow.node import Node, fingerprint_of
from headrace.engine.dataflow.output import Output, canonical
from headrace.engine.dataflow.overflow import overflowed
from headrace.engine.dataflow.reduce import Lookups, ReduceNode
from headrace.engine.dataflow.stateless import ConcatNode, FilterNode, KeyCheckNode, NegateNode, ProjectNode
from headrace.engine.dataflow.top import TopNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.iteration.group_round import OfGroups, group_round
from headrace.engine.iteration.loop_groups import LoopGroups
from headrace.engine.operators.aggregates import slots_of
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Case, ColumnRef, Expr, Literal
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.operators.top import MOST_ROWS, Order, Top, top_of_groups
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema

COUNT_ROWS = Aggregate("count", None, BIGINT)


@dataclass(frozen=True)
class Collection:
    """A plan in a dataflow. `schema` names and types the columns; `flow` is the graph it runs in."""

    flow: Graph
    node: Node
    schema: Schema

    @property
    def fingerprint(self) -> str:
        """Names the plan, whatever its columns are called."""
        return self.node.fingerprint

    def project(self, exprs: Sequence[Expr], schema: Schema) -> Collection:
        """Each row replaced by the values of `exprs`; a row that fails becomes an error."""
        columns = self.schema.columns
        if len(exprs) == len(columns) and all(
            isinstance(e, ColumnRef) and e.index == i and e.type == columns[i].type for i, e in enumerate(exprs)
        ):
            return Collection(self.flow, self.node, schema)
        inner = self.node
        if isinstance(inner, ProjectNode) and _only_columns(inner.exprs) and _only_columns(exprs):
            # Choosing among chosen columns: plans that choose the same ones of one source are one plan.
            source = Collection(self.flow, inner.inputs[0], inner.inputs[0].schema)
            return source.project([inner.exprs[e.index] for e in exprs if isinstance(e, ColumnRef)], schema)
        fingerprint = fingerprint_of("project", self.fingerprint, *exprs)
        node = self.flow.intern(fingerprint, lambda: ProjectNode(fingerprint, self.node, exprs, schema))
        return Collection(self.flow, node, schema)

    def filter(self, predicate: Expr) -> Collection:
        """The rows for which `predicate` is TRUE; a row on which it fails becomes an error."""
        fingerprint = fingerprint_of("filter", self.fingerprint, predicate)
        node = self.flow.intern(fingerprint, lambda: FilterNode(fingerprint, self.node, predicate))
        return Collection(self.flow, node, self.schema)

    def concat(self, *others: Collection) -> Collection:
        """All rows of all (multiplicities add up); the lanes must be equal.

        The schema is this one's, but that a column may be NULL where it may be in any.
        """
        inputs = [self.node, *(o.node for o in others)]
        fingerprint = fingerprint_of("concat", *(n.fingerprint for n in inputs))
        columns = zip(*(c.schema.columns for c in (self, *others)), strict=True)
        schema = Schema(tuple(_null_in_any(cs) for cs in columns))
        node = self.flow.intern(fingerprint, lambda: ConcatNode(fingerprint, schema, inputs))
        return Collection(self.flow, node, schema)

    def negate(self) -> Collection:
        """Every multiplicity with its sign changed; errors stay."""
        fingerprint = fingerprint_of("negate", self.fingerprint)
        schema = Schema(self.schema.columns)
        node = self.flow.intern(fingerprint, lambda: NegateNode(fingerprint, schema, [self.node]))
        return Collection(self.flow, node, schema)

    def arrange(self, key: Sequence[int]) -> Collection:
        """The same rows, kept by `key` for all who look them up by it, who may filter and project them before.

        Whoever joins the rows themselves needs none of this: it is for plans of which each would keep a part of its own.
        """
        if own_key(self.node) == tuple(key):
            return self
        node = self.flow.indexed(self.flow.by_key(self.node, tuple(key), exactly=True), tuple(key))
        return Collection(self.flow, node, self.schema)

    def join(
        self,
        other: Collection,
        left_key: Sequence[int],
        right_key: Sequence[int],
        residual: Expr | None = None,
        columns: Sequence[int] | None = None,
    ) -> Collection:
        """Inner join where the keys are equal (both sides of one type each; NULL meets nothing) and `residual` is TRUE.

        Rows are left columns ++ right columns, or of these the ascending positions `columns` alone; the residual is
        over the row as it is then.
        """
        pairs = _ordered(list(zip(left_key, right_key, strict=True)), self.node, other.node)
        left, right = self.flow.to_join(self.node, other.node, pairs)
        both = (*self.schema.columns, *other.schema.columns)
        held = tuple(range(len(both)) if columns is None else columns)
        schema = Schema(tuple(both[c] for c in held))
        fingerprint = fingerprint_of("join", left.fingerprint, right.fingerprint, residual, held)
        node = self.flow.intern(fingerprint, lambda: JoinNode(fingerprint, left, right, schema, residual, held))
        return Collection(self.flow, node, schema)

    def reduce(self, key: Sequence[int], aggregates: Sequence[Aggregate], schema: Schema) -> Collection:
        """One row a group: key columns ++ one column an aggregate. Without a key: exactly one row, even when empty."""
        return self._reduced(key, aggregates, schema)

    def _reduced(
        self, key: Sequence[int], aggregates: Sequence[Aggregate], schema: Schema, least: int = 1
    ) -> Collection:
        """As `reduce`; a group is shown while it has at least so many rows."""
        wanted = [replace(a, distinct=a.distinct and a.function in ("count", "sum", "avg")) for a in aggregates]
        prepared, arguments = self._prepare(key, wanted)
        types = tuple(c.type for c in prepared.schema.columns)
        shape = Shape(len(key), types, tuple(slots_of(wanted, arguments, types)), schema, least)
        plain = [(s.aggregate.function, s.aggregate.distinct, s.aggregate.type, s.column) for s in shape.slots]
        shown = [] if least == 1 else [f"at least {least}"]
        fingerprint = fingerprint_of("reduce", prepared.fingerprint, len(key), *plain, *shown)
        if shape.is_count and self.flow.scope is None:
            arranged = self.flow.arrange(prepared.node, tuple(range(shape.key)))
            count = self.flow.intern(fingerprint, lambda: CountNode(fingerprint, arranged, shape))
            return Collection(self.flow, count, schema)
        standing = None if self.flow.scope is None else LoopGroups.of(shape)
        if standing is not None:
            lanes = prepared._columns(standing.columns)
            arranged = self.flow.arrange(lanes.node, tuple(range(shape.key)), standing.order)
            fingerprint = fingerprint_of("standing", fingerprint)
            stands = self.flow.intern(fingerprint, lambda: LoopGroupsNode(fingerprint, arranged, standing))
            return Collection(self.flow, stands, schema)
        lookups = prepared._lookups(shape)
        node = self.flow.intern(
            fingerprint, lambda: ReduceNode(fingerprint, self.flow.registry, prepared.node, shape, lookups)
        )
        return Collection(self.flow, node, schema)

    def _lookups(self, shape: Shape) -> Lookups:
        """What a reduce of this collection, which is prepared for it, looks groups up in."""
        width, key = shape.key, list(range(shape.key))
        wholes = []
        for slot in shape.wholes:
            assert slot.column is not None
            distinct = slot.aggregate.distinct
            values = self._distinct(width, slot.column) if distinct else self._columns([*key, slot.column])
            wholes.append(self.flow.arrange(values.node, tuple(key), (width,)))
        return Lookups(
            [self._distinct(width, column).node for column in shape.distinct],
            [self.flow.arrange(self._columns([*key, e.column]).node, tuple(key), (width,)) for e in shape.extremes],
            wholes,
            self.flow.arrange(self._columns(key).node, tuple(key)) if shape.has_images else None,
        )

    def _distinct(self, key: int, column: int) -> Collection:
        """The distinct values of `column` within the first `key` columns, which stand before it.

        The value comes first while rows are told apart, so that its least image stands for it, whatever the keys' are.
        """
        found = self._columns([column, *range(key)]).distinct()
        return found._columns([*range(1, key + 1), 0])

    def pick(self, positions: Sequence[int], schema: Schema) -> Collection:
        """These columns alone, under the names of `schema`."""
        return self.project([ColumnRef(k, self.schema.columns[k].type) for k in positions], schema)

    def _columns(self, positions: Sequence[int]) -> Collection:
        """These columns alone."""
        columns = [self.schema.columns[k] for k in positions]
        names = Schema(tuple(Column(f"c{i}", c.type, c.nullable) for i, c in enumerate(columns)))
        return self.project([ColumnRef(k, c.type) for k, c in zip(positions, columns, strict=True)], names)

    def _prepare(self, key: Sequence[int], aggregates: Sequence[Aggregate]) -> tuple[Collection, list[int | None]]:
        """Key columns ++ the distinct arguments, filters folded in, a group on one shard; each aggregate's column."""
        exprs: list[Expr] = [ColumnRef(k, self.schema.columns[k].type) for k in key]
        arguments: list[int | None] = []
        for aggregate in aggregates:
            expr = _argument(aggregate)
            if expr is None:
                arguments.append(None)
                continue
            if expr not in exprs:
                exprs.append(expr)
            arguments.append(exprs.index(expr))
        exprs = exprs or [Literal(True, BOOLEAN)]
        columns = [
            self.schema.columns[e.index] if isinstance(e, ColumnRef) else Column(f"argument{i}", e.type)
            for i, e in enumerate(exprs)
        ]
        made = self.project(exprs, Schema(tuple(columns)))
        return replace(made, node=self.flow.by_key(made.node, tuple(range(len(key))))), arguments

    def distinct(self) -> Collection:
        """Each row once, while its multiplicity is above zero; of rows that are equal the least image."""
        return self.at_least(1)

    def at_least(self, copies: int) -> Collection:
        """Each row once, while it is there at least so many times (1 or more)."""
        assert copies >= 1, "a row that is not there cannot be shown"
        schema = Schema(self.schema.columns)
        if not schema.columns:
            # A reduce without a key has a row where there is nothing, too.
            return _marked(self).at_least(copies).project([], schema)
        return self._reduced(range(len(schema.columns)), (), schema, copies)

    def count(self) -> Collection:
        """Each row once, with one column more: how many times it is there."""
        columns = (*self.schema.columns, Column("count", BIGINT, nullable=False))
        return self.reduce(range(len(self.schema.columns)), [COUNT_ROWS], Schema(columns))

    def semijoin(self, other: Collection, left_key: Sequence[int], right_key: Sequence[int]) -> Collection:
        """The rows, with their multiplicities, whose key is among the keys of `other`; NULL is among none (IN, EXISTS).

        Without keys: all rows while `other` has any.
        """
        keys, left, right = self._keys_of(other, left_key, right_key)
        return self.join(keys, left, right, None, range(len(self.schema.columns)))

    def antijoin(self, other: Collection, left_key: Sequence[int], right_key: Sequence[int]) -> Collection:
        """The rows that `semijoin` leaves out, those with NULL in their key among them (NOT EXISTS)."""
        keys, left, right = self._keys_of(other, left_key, right_key)
        arranged = self.flow.to_join(self.node, keys.node, list(zip(left, right, strict=True)))
        fingerprint, schema = (
            fingerprint_of("antijoin", *(a.fingerprint for a in arranged)),
            Schema(self.schema.columns),
        )
        node = self.flow.intern(fingerprint, lambda: AntijoinNode(fingerprint, *arranged, schema))
        return Collection(self.flow, node, schema)

    def left_join(self, other: Collection, left_key: Sequence[int], right_key: Sequence[int]) -> Collection:
        """`join`, and the rows without a partner once, as often as they are there, with NULL for the columns of `other`."""
        columns = [replace(c, nullable=True) for c in other.schema.columns]
        schema = Schema((*self.schema.columns, *columns))
        own = [ColumnRef(k, c.type) for k, c in enumerate(self.schema.columns)]
        alone = self.antijoin(other, left_key, right_key).project(
            [*own, *(Literal(None, c.type) for c in columns)], schema
        )
        pairs = self.join(other, left_key, right_key)
        return Collection(self.flow, pairs.node, schema).concat(alone)

    def top_k(self, key: Sequence[int], order: Sequence[Order], limit: int, offset: int = 0) -> Collection:
        """Of each group the first `limit` rows (copies count) after `offset` in `order`; equal ones by fingerprint.

        A change costs the logarithm of its group and what is wanted of it; with several columns in the order, or one of
        text or wide numerics, also the rows whose first column begins alike; in a loop its group.
        """
        if limit < 0 or offset < 0 or limit + offset > MOST_ROWS:
            raise InvariantBroken("no such part of a group", limit=limit, offset=offset, most=MOST_ROWS)
        schema = Schema(self.schema.columns)
        wanted = Top(schema, tuple(key), tuple(order), limit, offset)
        spelled = [(o.column, o.descending, o.begins_with_nulls) for o in order]
        if self.flow.scope is not None:
            return self.of_groups("top", key, [spelled, limit, offset], partial(top_of_groups, wanted), schema)
        columns = [ColumnRef(k, c.type) for k, c in enumerate(schema.columns)]
        null = Call("is null(any)", (columns[order[0].column],), BOOLEAN) if order else Literal(False, BOOLEAN)
        flagged = self.project([*columns, null], Schema((*schema.columns, Column("is null", BOOLEAN, nullable=False))))
        grouped, first = self.flow.by_key(flagged.node, tuple(key)), tuple(o.column for o in order[:1])
        arranged = self.flow.arrange(grouped, (*key, len(columns)), first)
        fingerprint = fingerprint_of("top", arranged.fingerprint, tuple(key), spelled, limit, offset)
        node = self.flow.intern(fingerprint, lambda: TopNode(fingerprint, arranged, wanted))
        return Collection(self.flow, node, schema)

    def of_groups(
        self, label: str, key: Sequence[int], spelled: Sequence[object], of: OfGroups, schema: Schema
    ) -> Collection:
        """In a loop: what `of` makes of the groups by `key`. `label` and `spelled` tell it from others."""
        arranged = self.flow.arrange(self.flow.by_key(self.node, tuple(key)), tuple(key))
        fingerprint = fingerprint_of(label, arranged.fingerprint, *spelled)
        node = self.flow.intern(
            fingerprint, lambda: GroupedNode(fingerprint, label, arranged, partial(group_round, of), schema)
        )
        return Collection(self.flow, node, schema)

    def _keys_of(
        self, other: Collection, left_key: Sequence[int], right_key: Sequence[int]
    ) -> tuple[Collection, tuple[int, ...], tuple[int, ...]]:
        """(a collection with each key of `other` once, the key's columns here, and there), in the order of `join`."""
        pairs = list(zip(left_key, right_key, strict=True))
        node, places = _source_of(other.node, right_key)
        if isinstance(node, TableNode) and node.is_keyed and set(node.key) <= set(places):
            # A table has each of its primary keys once.
            keys = Collection(self.flow, node, node.schema)
            pairs = list(zip(left_key, places, strict=True))
        else:
            columns = sorted(set(right_key))
            keys = (other._columns(columns) if columns else _marked(other)).distinct()
            pairs = [(one, columns.index(two)) for one, two in pairs]
        pairs = _ordered(pairs, self.node, keys.node)
        return keys, tuple(one for one, _ in pairs), tuple(two for _, two in pairs)

    def check_key(self, key: Sequence[int], view: str) -> Collection:
        """The same rows, with an error for each key that has more than one live row."""
        names = [self.schema.columns[k].name for k in key]
        columns = [*(self.schema.columns[k] for k in key), Column("count", BIGINT, nullable=False)]
        counts = self.reduce(key, [COUNT_ROWS], Schema(tuple(columns)))
        fingerprint = fingerprint_of("check_key", self.fingerprint, tuple(key), view, names)
        node = self.flow.intern(fingerprint, lambda: KeyCheckNode(fingerprint, self.node, counts.node, view, names))
        return Collection(self.flow, node, self.schema)

    def snapshot(self, as_of: int) -> tuple[Updates, Updates]:
        """(rows, errors) at `as_of`, consolidated, all times `as_of`; a multiplicity that does not fit is the error.

        Raises NotFaithful.
        """
        layout = layout_of(self.schema, ())
        try:
            return canonical(self.flow.content(self.node, as_of), layout)
        except DiffOverflow as why:
            return canonical(Delta(None, overflowed(as_of, why)), layout)

    def changes(self, lower: int, upper: int) -> tuple[Updates, Updates]:
        """(rows, errors) that changed at the epochs [lower, upper), which are complete: as an `Output` would give them.

        Read from the traces, of which all must have their since before `lower`: see `Dataflow.read`. Raises NotFaithful.
        """
        layout = layout_of(self.schema, ())
        try:
            return canonical(self.flow.changes(self.node, lower, upper), layout)
        except DiffOverflow as why:
            return canonical(Delta(None, overflowed(lower, why)), layout)

    def output(self, name: str) -> Output:
        """The door through which this collection's changes leave."""
        return self.flow.add_output(Output(name, self))  # type: ignore[attr-defined, no-any-return]


def _source_of(node: Node, columns: Sequence[int]) -> tuple[Node, list[int]]:
    """The node of which `node` only chooses columns, and where `columns` stand there."""
    found = list(columns)
    while isinstance(node, ProjectNode) and _only_columns(node.exprs):
        found = [e.index for e in (node.exprs[k] for k in found) if isinstance(e, ColumnRef)]
        node = node.inputs[0]
    return node, found


def _marked(collection: Collection) -> Collection:
    """A column that is true of each row, in the place of its own."""
    return collection.project([Literal(True, BOOLEAN)], Schema((Column("row", BOOLEAN),)))


def _null_in_any(columns: Sequence[Column]) -> Column:
    """The first, which may be NULL where any may."""
    first = columns[0]
    return replace(first, nullable=True) if not first.nullable and any(c.nullable for c in columns) else first


def _only_columns(exprs: Sequence[Expr]) -> bool:
    return all(isinstance(expr, ColumnRef) for expr in exprs)


def _argument(aggregate: Aggregate) -> Expr | None:
    """The aggregate's argument, NULL where its filter is not TRUE; None for a plain count(*)."""
    if aggregate.filter is None:
        return aggregate.arg
    arg = Literal(True, BOOLEAN) if aggregate.arg is None else aggregate.arg
    return Case(((aggregate.filter, arg),), Literal(None, arg.type), arg.type)


def _ordered(pairs: list[tuple[int, int]], left: Node, right: Node) -> list[tuple[int, int]]:
    """Key pairs in the order of a table's own key where they are that key, so that its arrangement serves, filtered or not.

    Raises InvariantBroken for a pair of lanes whose values would never meet.
    """
    for one, two in pairs:
        lanes = left.schema.columns[one].type.arrow, right.schema.columns[two].type.arrow
        if lanes[0] != lanes[1] and not all(pa.types.is_integer(lane) for lane in lanes):
            raise InvariantBroken("keys of two lanes never meet", left=lanes[0], right=lanes[1], hint="cast one")
    for side, node in ((0, left), (1, right)):
        key = own_key(node)
        columns = [pair[side] for pair in pairs]
        if key is not None and len(set(columns)) == len(columns) and set(columns) == set(key):
            return sorted(pairs, key=lambda pair: key.index(pair[side]))
    return sorted(pairs)
