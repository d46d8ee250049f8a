"""The FROM clause bound: tables, views, CTEs and subqueries joined in the order written, with their names in sight.

Always: an inner join has no keys yet and its whole ON condition as residual; the rules find keys and order. An outer join
has its keys at once (`outer_joins`).
What a join condition may see is as in Postgres: the tables of its own comma-separated item. Called by `select`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Coalesce, Expr
from headrace.views.expressions import conjunction, conjuncts, moved, shifted
from headrace.views.plan import Import, Join, One, Plan, Project, Scan, identity
from headrace.views.rewrite import fenced
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.environment import Environment
from headrace.views.sql.from_clause.from_aliases import aliased, check_aliases, named, of_function
from headrace.views.sql.from_clause.outer_joins import outer_join, right_join
from headrace.views.sql.from_clause.set_returning import beside, in_from, is_function
from headrace.views.sql.from_clause.values import values
from headrace.views.sql.ordering import CLAUSES
from headrace.views.sql.parsing.parse import Source, name_of, start_of
from headrace.views.sql.query_order import arrival, with_keys
from headrace.views.sql.scope import Scope
from headrace.views.sql.subqueries.decorrelate.link import CannotPush, link
from headrace.views.sql.subqueries.decorrelate.outer_columns import parameters, raised
from headrace.views.sql.subqueries.subquery_binder import BindQuery, Subqueries, holds_subquery
from headrace.views.yaml_models import nearest

Item = tuple[Plan, Scope]
"""What an item of FROM gives: its rows, and their names."""


class Tables:
    """Binds FROM clauses of one view; `placed`: functions number their rows, though nobody names the number. `within`: what
    is bound stands in parentheses, and sees the tables before these. `alone`: the one item of the FROM
    clause, where there is one.
    """

    def __init__(
        self, source: Source, env: Environment, bind_query: BindQuery, *, placed: bool = False, within: bool = False
    ) -> None:
        self.source = source
        self.env = env
        self.bind_query = bind_query
        self.placed = placed
        self.within = within
        self.alone: exp.Expr | None = None

    def bind(self, first: exp.Expr, joins: list[exp.Expr]) -> Item:
        """The plan and names of `FROM first …joins`."""
        self.alone = None if joins else first
        groups, own, comma = [self.item(first)], 0, 0
        # `own`: where in the last group its last item begins, before which stands what that item reads of those before it.
        for at, join in enumerate(joins):
            self.source.only(join, {"this", "on", "using", "method", "kind", "side"})
            plain = not any(join.args.get(k) for k in ("on", "using", "method", "kind", "side"))
            if _sees(join.this) and join.args.get("side") in (None, "", "LEFT"):
                # It sees all that stands before it, its condition the tables of its own item.
                before = self.together(first, groups)
                begin = before[1].width if plain else own + sum(names.width for _, names in groups[:-1])
                found = self.reading(before, join, begin)
                if found is not None:
                    groups, own, comma = [found], begin, at if plain else comma
                    continue
            if plain:
                groups.append(self.item(join.this))
                own, comma = 0, at
            elif own and join.args.get("side") in ("RIGHT", "FULL"):
                groups = [self.whole(self.bind(first, joins[:comma]), joins[comma : at + 1])]
            else:
                groups[-1] = self.join(groups[-1], join, own)
        return self.together(first, groups)

    def inside(self, names: Scope) -> Tables:
        """What binds an item that sees the tables before it, `names`, as LATERAL does."""
        env = self.env.inside(self.seen(names))
        return Tables(self.source, env, self.bind_query, placed=self.placed, within=True)

    def seen(self, names: Scope) -> Scope:
        """The names before an item, and those around."""
        return replace(names, outer=self.env.outer, same=self.within)

    def whole(self, before: Item, joins: list[exp.Expr]) -> Item:
        """An item of FROM that reads those before it, and whose joins keep rows without any of what it reads: all of it is
        bound for each row before it, as LATERAL (SELECT * FROM …) is.
        """
        plan, scope = self.inside(before[1]).bind(joins[0].this, joins[1:])
        check_aliases(self.source, joins[0].this, before[1], scope)
        return self.of_each(before[0], joins[0], "", plan, None, None), before[1].beside(scope)

    def together(self, first: exp.Expr, groups: list[Item]) -> Item:
        """The comma-separated items of FROM as one."""
        plan, scope = groups[0]
        for right, names in groups[1:]:
            check_aliases(self.source, first, scope, names)
            plan, scope = Join(plan, right, at=_at(right)), scope.beside(names)
        return plan, scope

    def side(self, join: exp.Expr) -> str:
        """Which side of a join stays whole: LEFT, RIGHT, FULL or none. Raises ViewError for what is no join of Postgres's."""
        side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
        if kind not in ("", "INNER", "CROSS", "OUTER") or method not in ("", "NATURAL"):
            self.source.refuse(join, f"{kind or method} JOIN is not Postgres's")
        on = join.args.get("on")
        bare = on is None and not join.args.get("using") and method != "NATURAL"
        if bare and (kind == "INNER" or (side and kind != "CROSS")):
            self.source.refuse(join, "a JOIN needs ON or USING", "write ON left.column = right.column")
        return side

    def join(self, left: Item, join: exp.Expr, begin: int = 0) -> Item:
        """One `left JOIN …`, whose own item of FROM has the columns from `begin` on."""
        found = self.reading(left, join, begin) if _sees(join.this) else None
        return self.met(left, join, begin, self.item(join.this), reads=False) if found is None else found

    def reading(self, left: Item, join: exp.Expr, begin: int) -> Item | None:
        """One `left JOIN` of an item that reads columns of the left side: for each of its rows what that gives for it, for
        all of them at once. None for an item that reads none.
        """
        node = join.this
        found = self.function_beside(left, join, begin) if is_function(node) else None
        if found is not None:
            return found
        right = self.inside(left[1]).item(node)
        if not parameters(right[0]):
            return None
        if self.side(join) in ("RIGHT", "FULL"):
            self.source.refuse(node, f"{join.args['side']} JOIN of what reads columns before it is not Postgres's")
        return self.met(left, join, begin, right, reads=True)

    def met(self, left: Item, join: exp.Expr, begin: int, right: Item, *, reads: bool) -> Item:
        """`left JOIN right` by the join's condition; `reads`: the right side reads rows of the left one."""
        side, on, names = self.side(join), join.args.get("on"), left[1]
        check_aliases(self.source, join.this, names, right[1])
        both = names.beside(right[1]).since(begin)
        queries = Subqueries(self.source, self.env, self.bind_query)
        using = self.using(join, names.since(begin), right[1])
        condition: Expr | None = None
        if using is not None:
            condition = conjunction([self.equal(join, both, pair) for pair in using.values()])
        elif on is not None:
            binder = Binder(self.source, both.within(self.env.outer), "JOIN/ON", queries=queries)
            condition = binder.boolean(on, "JOIN/ON")
        if reads:
            plan = self.of_each(left[0], join, side, right[0], condition, queries)
        elif condition is not None and side in ("LEFT", "RIGHT") and queries.reads_both(condition, names.width):
            assert on is not None
            plan = self.of_pairs(join, on, side, left, right)
        else:
            plan = self.joined(join, side, left[0], right[0], condition, queries)
        scope = _seen(names, right[1], side)
        if using is None:
            return plan, scope
        plan, scope = self.merged(plan, scope, side, using, begin)
        alias = join.args["using"][-1] if join.args.get("using") else None
        if not isinstance(alias, exp.TableAlias):
            return plan, scope
        return self.renamed(join, plan, scope, list(using), name_of(alias.this))

    def using(self, join: exp.Expr, left: Scope, right: Scope) -> dict[str, tuple[int, int]] | None:
        """Where the columns that USING names, or NATURAL finds, stand in the row of both sides; None without either."""
        names = [name_of(n) for n in join.args.get("using") or () if not isinstance(n, exp.TableAlias)]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            self.source.refuse(join, f'column name "{twice}" appears more than once in USING clause')
        if str(join.args.get("method") or "").upper() == "NATURAL":
            names = [n for n in dict.fromkeys(left.names()) if n in right.names()]
        elif not names:
            return None
        return {name: self.shared(join, left, right, name) for name in names}

    def joined(
        self, join: exp.Expr, side: str, left: Plan, right: Plan, condition: Expr | None, queries: Subqueries | None
    ) -> Plan:
        """The join's plan, inner or outer; `queries`: of the subqueries that the condition may hold."""
        if condition is None or queries is None or not holds_subquery(condition):
            at = start_of(join.this) or 0
            if not side:
                return Join(left, right, residual=condition, at=at)
            if side == "RIGHT":
                return right_join(left, right, condition, at)
            return outer_join(left, right, condition, full=side == "FULL", at=at)
        if not side:
            plan = self.joined(join, side, left, right, None, None)
            return Project(queries.kept(plan, conjuncts(condition)), *identity(plan.schema))
        widths = [len(s.schema.columns) for s in (left, right)]
        left, right, condition = queries.apart(left, right, condition)
        joined = self.joined(join, side, left, right, condition, None)
        places = [*range(widths[0]), *(len(left.schema.columns) + i for i in range(widths[1]))]
        return Project(joined, *identity(joined.schema, places))

    def of_pairs(self, join: exp.Expr, on: exp.Expr, side: str, left: Item, right: Item) -> Plan:
        """A LEFT or RIGHT JOIN by a condition with a subquery that reads both sides: for each row of the one those rows of the
        other that the condition keeps, as LATERAL has them.
        """
        (plan, names), (other, inside) = (left, right) if side == "LEFT" else (right, left)
        around = names.within(self.env.outer)
        queries = Subqueries(self.source, self.env.inside(around), self.bind_query)
        binder = Binder(self.source, inside.within(around), "JOIN/ON", queries=queries)
        # what it reads of the queries around stands a level further out from here
        kept = Project(queries.kept(raised(other), conjuncts(binder.boolean(on, "JOIN/ON"))), *identity(other.schema))
        joined = self.of_each(plan, join, "LEFT", kept, None, None)
        width, size = len(plan.schema.columns), len(joined.schema.columns)
        return (
            joined
            if side == "LEFT"
            else Project(joined, *identity(joined.schema, [*range(width, size), *range(width)]))
        )

    def of_each(
        self, left: Plan, join: exp.Expr, side: str, plan: Plan, condition: Expr | None, queries: Subqueries | None
    ) -> Plan:
        """The rows of `left` with what `plan`, which reads them, gives for each, by the condition over both."""
        row = identity(left.schema)[0]
        try:
            linked = link(left, plan, {place: row[place] for place, _ in parameters(plan)}, whole=True)
        except CannotPush as error:
            self.source.refuse(join.this, f"a {error} in LATERAL that reads columns before it is not supported")
        width = len(row)
        places = {**{i: i for i in range(width)}, **{width + i: width + linked.first + i for i in range(linked.width)}}
        parts = [coerce.called("=", [a, shifted(b, width)]) for a, b in linked.pairs]
        met = conjunction([*parts, *([] if condition is None else [moved(condition, places)])])
        joined = self.joined(join, side, left, linked.plan, met, queries)
        return Project(joined, *identity(joined.schema, list(places.values())))

    def equal(self, join: exp.Expr, both: Scope, pair: tuple[int, int]) -> Expr:
        """That the columns at two places are equal."""
        binder = Binder(self.source, both, "USING")
        refs = [binder.reference(p) for p in pair]
        return binder.typed(join.this, lambda: coerce.called("=", refs))

    def merged(self, plan: Plan, scope: Scope, side: str, shared: Mapping[str, tuple[int, int]], begin: int) -> Item:
        """After USING: each of its names once, for a column of a side or for one behind the row that holds either's; first
        of its own item of FROM, which begins at `begin`.
        """
        own, names = identity(plan.schema)
        made: list[Expr] = []
        places: dict[str, int] = {}
        for name, pair in shared.items():
            refs = [own[p] for p in pair]
            both, common = coerce.unified(refs, "JOIN/USING")
            fitting = [p for p, e in zip(pair, refs, strict=True) if e.type.kind is common.kind]
            wanted = {"LEFT": pair[:1], "RIGHT": pair[1:], "FULL": ()}.get(side, pair)
            found = [p for p in wanted if p in fitting]
            if found:
                places[name] = found[0]
                continue
            places[name] = len(own) + len(made)
            made.append(Coalesce(both, common) if side == "FULL" else both[side == "RIGHT"])
        if made:
            plan = Project(plan, (*own, *made), (*names, *(n for n, p in places.items() if p >= len(own))))
            scope = scope.widened(plan.schema.columns[len(own) :])
        return plan, scope.merged(places, begin)

    def renamed(self, join: exp.Expr, plan: Plan, scope: Scope, using: list[str], alias: str) -> Item:
        """After USING (…) AS alias: its columns behind the row too, where the alias means them."""
        own, names = identity(plan.schema)
        first = next(i for i, (name, _) in enumerate(scope.visible) if name in using)
        merged = dict(scope.visible[first : first + len(using)])
        plan = Project(plan, (*own, *(own[merged[n]] for n in using)), (*names, *using))
        columns = tuple(replace(c, name=n) for c, n in zip(plan.schema.columns[len(own) :], using, strict=True))
        check_aliases(self.source, join.this, scope, Scope.of(alias, columns))
        return plan, scope.widened(columns, alias)

    def shared(self, join: exp.Expr, left: Scope, right: Scope, name: str) -> tuple[int, int]:
        """Where a name of USING stands in the row of both sides."""
        sides = (left.find(name), right.find(name))
        for places, word, scope in zip(sides, ("left", "right"), (left, right), strict=True):
            if len(places) != 1:
                reason = f'common column name "{name}" appears more than once in {word} table'
                if not places:
                    reason = f'column "{name}" specified in USING clause does not exist in {word} table'
                self.source.refuse(join.this, reason, nearest(name, scope.names()) if not places else "use ON")
        return sides[0][0], left.width + sides[1][0]

    def item(self, node: exp.Expr) -> Item:
        """One table, view, CTE, subquery or parenthesised join."""
        if isinstance(node, exp.Subquery):
            return self.subquery(node)
        joins = node.args.get("joins")
        if joins:
            node = node.copy()
            node.set("joins", None)
            return self.nested(*self.item(node), joins)
        if is_function(node):
            return self.function(node)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Values):
            # the first in parentheses
            rows, alias = node.this.copy(), node.args.get("alias")
            rows.set("alias", None if alias is None else alias.copy())
            return self.item(rows)
        if isinstance(node, exp.Lateral):
            self.source.only(node, {"this", "alias"})
            return self.query(node, node.this.this if isinstance(node.this, exp.Subquery) else node.this)
        if isinstance(node, exp.Values):
            plan = values(self.source, self.env, node, self.bind_query, settle=True)
            return plan, aliased(self.source, node, "", plan.schema.columns, plan)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            self.refused(node)
        self.source.only(node, {"this", "db", "alias"})
        plan, columns, name = named(self.source, self.env, node)
        own = "" if node.args.get("db") is not None else "record" if name in self.env.ctes else name
        return plan, aliased(self.source, node, name, columns, plan, own)

    def refused(self, node: exp.Expr) -> NoReturn:
        """Refuses what is no table, view or query."""
        self.source.refuse(node, "this is not supported in FROM", "read a table, a view, a subquery or a set of rows")

    def function(self, node: exp.Expr) -> Item:
        """A function in FROM that reads nothing before it."""
        binder = Binder(self.source, Scope((), (), self.env.outer), "functions in FROM")
        call = in_from(binder, node)
        plan = beside(One(), call, placed=self.placed)
        plan = Project(plan, *identity(plan.schema, range(1, len(plan.schema.columns))))
        return plan, of_function(self.source, node, call, plan.schema.columns, placed=self.placed)

    def function_beside(self, before: Item, join: exp.Expr, begin: int) -> Item | None:
        """One `left JOIN function(…)` that reads columns before it, spread beside these; None for one that reads none, and
        for one by a condition that keeps rows, or names columns.
        """
        (left, names), node, side, on = before, join.this, self.side(join), join.args.get("on")
        always = isinstance(on, exp.Boolean) and on.this
        if side not in ("", "LEFT") or (side and not always) or join.args.get("using") or join.args.get("method"):
            return None
        call = in_from(Binder(self.source, self.seen(names), "functions in FROM"), node)
        if not call.reads:
            return None
        plan = beside(left, call, outer=side == "LEFT", placed=self.placed)
        scope = of_function(
            self.source, node, call, plan.schema.columns[len(left.schema.columns) :], placed=self.placed
        )
        check_aliases(self.source, node, names, scope)
        both = names.beside(scope)
        if on is not None and not always:
            queries = Subqueries(self.source, self.env, self.bind_query)
            binder = Binder(self.source, both.since(begin).within(self.env.outer), "JOIN/ON", queries=queries)
            kept = queries.kept(plan, conjuncts(binder.boolean(on, "JOIN/ON")))
            plan = Project(kept, *identity(plan.schema))
        return plan, both

    def nested(self, plan: Plan, scope: Scope, joins: list[exp.Expr]) -> Item:
        """Joins written inside parentheses, or before the ON of the one around."""
        for join in joins:
            plan, scope = self.join((plan, scope), join)
        return plan, scope

    def subquery(self, node: exp.Expr) -> Item:
        """`(SELECT …) AS alias`, or a parenthesised join."""
        self.source.only(node, {"this", "alias", "joins"})
        inner = node.this
        if isinstance(inner, exp.Table | exp.Subquery):
            plan, scope = self.item(inner)
            if node.args.get("alias") is not None:
                exprs, _ = identity(plan.schema, [place for _, place in scope.visible])
                plan = Project(plan, exprs, scope.names())
                scope = aliased(self.source, node, "", plan.schema.columns, plan)
            return self.nested(plan, scope, node.args.get("joins") or [])
        return self.nested(*self.query(node, inner), node.args.get("joins") or [])

    def query(self, node: exp.Expr, inner: exp.Expr) -> Item:
        """The query `inner`, under the alias of `node`."""
        ordered = self.placed and node is self.alone and inner.args.get("order") is not None
        orders = arrival(inner) if ordered else ()
        if ordered and not orders:
            self.source.refuse(
                inner, "the order of this subquery is not kept", "name what it is ordered by, not its number"
            )
        plan = self.bind_query(self.source, self.env, with_keys(inner) if orders else inner)
        if any(inner.args.get(clause) for clause in ("with_", *CLAUSES)):
            plan = fenced(plan)
        columns = plan.schema.columns[: len(plan.schema.columns) - len(orders)]
        scope = aliased(self.source, node, "", columns, plan)
        return plan, scope.widened(plan.schema.columns[len(columns) :], orders=orders) if orders else scope


def _sees(node: exp.Expr) -> bool:
    """Whether an item of FROM sees those before it: a function, LATERAL, and a join in parentheses that holds one."""
    if isinstance(node, exp.Lateral) or is_function(node):
        return True
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and not isinstance(node.this, exp.Subquery):
        return False
    parts = [node.this] if isinstance(node, exp.Subquery) else []
    parts += [join.this for join in node.args.get("joins") or ()]
    return any(map(_sees, parts))


def _seen(left: Scope, right: Scope, side: str) -> Scope:
    """The names after a join: those of a side that may be missing may be NULL."""
    kept = left.nullable() if side in ("RIGHT", "FULL") else left
    return kept.beside(right.nullable() if side in ("LEFT", "FULL") else right)


def _at(plan: Plan) -> int:
    return plan.at if isinstance(plan, Scan | Import | Join) else 0
