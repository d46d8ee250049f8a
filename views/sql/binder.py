"""The binder of one clause: finds what a name means and hands each node of sqlglot's to the handler of its kind.

Always: a name that this query does not have is looked for in those around it; a node kind without a handler is refused
by name, at its place; so is every type problem. Handlers register with `binds`; they live in `expressions`, `functions`,
`aggregate_calls`, `subquery_binder` and `window_calls`. Made by `select` and `tables`, one a clause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NoReturn, Protocol

from sqlglot import exp

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Cast, ColumnRef, Expr, Literal
from headrace.views.errors import ViewError
from headrace.views.expressions import children as operands
from headrace.views.placeholders import OuterColumn, Placeholder
from headrace.views.plan import Plan
from headrace.views.sql import coerce
from headrace.views.sql.parsing.parse import Source, name_of, spelled_as, start_of
from headrace.views.sql.scope import Scope
from headrace.views.yaml_models import nearest

Handler = Callable[["Binder", exp.Expr], Expr]

_HANDLERS: dict[type[exp.Expr], tuple[Handler, frozenset[str] | None]] = {}


def binds(*kinds: type[exp.Expr], reads: str | None = "this expression") -> Callable[[Handler], Handler]:
    """Registers the handler of some node kinds.

    `reads` names the node's arguments that the handler looks at: a node with others is refused, so that nothing is
    dropped in silence. None is for handlers that only refuse.
    """

    def register(handler: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(kinds, (handler, None if reads is None else frozenset(reads.split()))))
        return handler

    return register


class Binder:
    """Binds the expressions of one clause over the row of `scope`.

    `clause` names it in messages. `aggregates` is where aggregates are collected, `queries` where subqueries are,
    `windows` where window functions are and `sets` where set-returning ones are; None refuses them. `groupings`: the
    arguments of each grouping(). `places` tells which node a column reference came from, by the reference's id;
    `read_outside`: positions read outside aggregates.
    """

    def __init__(
        self,
        source: Source,
        scope: Scope,
        clause: str,
        aggregates: list[Aggregate] | None = None,
        queries: Queries | None = None,
        windows: Windows | None = None,
        sets: Sets | None = None,
    ) -> None:
        self.source = source
        self.scope = scope
        self.clause = clause
        self.aggregates = aggregates
        self.queries = queries
        self.windows = windows
        self.sets = sets
        self.inside_aggregate = False
        self.groupings: list[tuple[Expr, ...]] = []
        self.read_outside: set[int] = set()
        self.places: dict[int, tuple[Expr, exp.Expr]] = {}

    def collecting(self, aggregates: list[Aggregate]) -> Binder:
        """This binder, but for where aggregates are collected."""
        found = copy(self)
        found.aggregates = aggregates
        return found

    def choosing(self, what: str, nodes: Sequence[exp.Expr]) -> list[Expr]:
        """What `what` (CASE, COALESCE) chooses among, in which nothing may return a set."""
        held, clause = self.sets, self.clause
        self.sets, self.clause = None, what if held is not None else clause
        try:
            return [self.bind(node) for node in nodes]
        finally:
            self.sets, self.clause = held, clause

    def bind(self, node: exp.Expr) -> Expr:
        """The node's typed expression; a literal may still be of unknown type. Raises ViewError."""
        handler, reads = _HANDLERS.get(type(node), (unsupported, None))
        if reads is not None:
            self.source.only(node, reads)
        found = self.typed(node, lambda: handler(self, node))
        is_made = isinstance(found, Call | Cast) and not isinstance(found, Placeholder)
        if is_made and all(isinstance(e, Literal) or e in self.source.constants for e in operands(found)):
            self.source.constants.setdefault(found, start_of(node) or 0)
        return found

    def boolean(self, node: exp.Expr, what: str) -> Expr:
        """The node as the truth value that `what` (WHERE, AND …) wants."""
        return self.typed(node, lambda: coerce.truth(self.bind(node), what))

    def settled(self, node: exp.Expr) -> Expr:
        """The node, an unknown literal being text."""
        return coerce.settled(self.bind(node))

    def typed(self, node: exp.Expr, make: Callable[[], Expr]) -> Expr:
        """What `make` gives, its problems placed at `node` when they have no place yet."""
        try:
            return make()
        except ViewError:
            raise
        except HeadraceError as error:
            self.source.refuse(node, error.what, error.hint)

    def column(self, node: exp.Expr) -> Expr:
        """The reference that a column's name means, here or in a query around this one."""
        depth, scope = 0, self.scope
        while scope.outer is not None and not _names(scope, node):
            depth, scope = depth + 1, scope.outer
        if scope.same and scope.outer is not None and node.args.get("table") is None and _names(scope.outer, node):
            self.source.refuse(
                node, f'column reference "{name_of(node.this)}" is ambiguous', "write its table before it"
            )
        if not depth or not _names(scope, node):
            return self.reference(self.position(node), node)
        around = Binder(self.source, scope, self.clause)
        position = around.position(node)
        return OuterColumn((), scope.column(position).type, depth, position)

    def reference(self, position: int, node: exp.Expr | None = None) -> ColumnRef:
        """A reference to a position of the scope's row, remembered as written at `node`."""
        ref = ColumnRef(position, self.scope.column(position).type)
        if node is not None:
            self.places[id(ref)] = (ref, node)
        if not self.inside_aggregate:
            self.read_outside.add(position)
        return ref

    def position(self, node: exp.Expr) -> int:
        """The position a column name means. Raises ViewError: unknown or ambiguous."""
        name = name_of(node.this)
        table = node.args.get("table")
        if table is None:
            found = self.scope.find(name)
            if len(found) > 1:
                owners = [r.alias for r in self.scope.relations if any(c.name == name for c in r.columns)]
                self.source.refuse(node, f'column reference "{name}" is ambiguous', f"write {owners[0]}.{name}")
            if not found:
                if self.scope.relation(name) is not None:
                    hint = f"name its columns, or write to_jsonb({name}), or {name}::text"
                    self.source.refuse(node, "a whole row as a value is not supported", hint)
                hint = nearest(name, self.scope.names())
                self.source.refuse(node, f'column "{name}" does not exist', hint)
            return found[0]
        alias, schema = name_of(table), schema_of(node)
        relation = self.scope.relation(alias, schema)
        if relation is None and self.scope.relations_named(alias, schema):
            self.source.refuse(node, f'table reference "{alias}" is ambiguous', "give each its own alias")
        if relation is None:
            alias = alias if schema is None else f"{schema}.{alias}"
            hint = nearest(alias, (r.alias for r in self.scope.relations))
            self.source.refuse(node, f'there is no table or alias "{alias}" in this FROM clause', hint)
        matches = [i for i, c in enumerate(relation.columns) if c.name == name]
        if not matches:
            hint = nearest(name, (c.name for c in relation.columns))
            self.source.refuse(node, f"column {alias}.{name} does not exist", hint)
        if len(matches) > 1:
            self.source.refuse(
                node, f'column reference "{name}" is ambiguous', "give the columns of the subquery aliases"
            )
        return relation.offset + matches[0]


class Windows(Protocol):
    """Where the window functions of one SELECT are bound and kept; `inside`: while one is bound."""

    inside: bool
    named: dict[str, exp.Expr]
    used: set[str]

    def call(self, over: Any, operands: Sequence[Expr]) -> Expr:
        """What stands for a window function until it has its column."""


class Sets(Protocol):
    """Where the set-returning functions of one SELECT list are kept."""

    def call(self, call: Call) -> Expr:
        """What stands for a set-returning function until its rows are made."""


class Queries(Protocol):
    """Where the subqueries of one SELECT are bound and kept."""

    def bound(self, binder: Binder, node: exp.Expr, kind: str, operands: Sequence[Expr], word: str = "") -> Expr:
        """The subquery's value over the binder's row, until it has its columns there. Raises ViewError."""

    def attached(self, plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
        """The plan with the subqueries' answers behind its columns, and the expressions over it."""

    def levels_read(self, exprs: Sequence[Expr]) -> set[int]:
        """By how many levels the outer queries that subqueries in `exprs` read are above the query that holds the subqueries."""


def _names(scope: Scope, node: exp.Expr) -> bool:
    """Whether the scope has the column that the node names, or at least its table."""
    table = node.args.get("table")
    if table is None:
        return bool(scope.find(name_of(node.this)))
    return bool(scope.relations_named(name_of(table), schema_of(node)))


def schema_of(node: exp.Expr) -> str | None:
    """The schema that a column's name tells, before its table."""
    db = node.args.get("db")
    return None if db is None else name_of(db)


def unsupported(binder: Binder, node: exp.Expr) -> NoReturn:
    """Refuses a node for its kind."""
    spelled = "" if isinstance(node, exp.UnicodeString) else spelled_as(node)
    shown = spelled if len(spelled) <= 40 else spelled[:37] + "..."
    made = isinstance(node, exp.Anonymous) and str(node.this).lower() == "row"
    what = _KINDS.get(exp.Tuple if made else type(node)) or _words(type(node).__name__)
    binder.source.refuse(node, f"{what} is not supported: {shown}")


_KINDS: dict[type[exp.Expr], str] = {
    exp.JSONExtract: "operator ->",
    exp.JSONExtractScalar: "operator ->>",
    exp.JSONBExtract: "operator #>",
    exp.JSONBExtractScalar: "operator #>>",
    exp.ByteString: "an escape string (E'…')",
    exp.UnicodeString: "a Unicode escape string (U&'…')",
    exp.Bracket: "a subscript",
    exp.Concat: "a string in several pieces",
    exp.GroupConcat: "aggregate string_agg",
    exp.Order: "ORDER BY in an aggregate",
    exp.Tuple: "a row value",
    exp.Interval: "type interval",
    exp.Dot: "a qualified function or a field of a value",
    exp.If: "function if()",
    exp.TryCast: "TRY_CAST",
}


def _words(name: str) -> str:
    """The name of a node's class in words: `HexString` is hex string, `XMLElement` xml element."""
    return re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).lower()
