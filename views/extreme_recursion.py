"""A recursion of minima or maxima as rules that the engine keeps by state: each extreme a variable, and what is shown over these.

A group's other relations are unfolded into the extremes' rules, so that a way of which there is a better one is nowhere kept.
Invariant: each rule hands every extreme that it reads on, strictly: of a better one follows a better one. Called by render
and explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.engine.operators.expressions.core.ir import Call, Cast, ColumnRef, Expr, Literal
from headrace.engine.schema import Kind, Schema
from headrace.views.expressions import base_name, columns, fallible, shifted, substituted
from headrace.views.plan import Plan, Recursion, Reduce, Reference, identity
from headrace.views.plan_node import Variable
from headrace.views.recursion import IMPROVES
from headrace.views.state_recursion import MOST_RULES, WHOLE, Body, ByState, Group, Kept, leaf_body, place_of

_ORDERED = (*WHOLE, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
"""Types whose lanes are in the order of their values."""

_ONCE = 2
"""Rounds of what is shown, which reads no row of its own."""

Bodies = Mapping[Variable, Sequence[Body]]


@dataclass(frozen=True)
class ByExtremes:
    """`extremes`: the rules of `variables`, which are the extremes; `shown`: the rules of what is shown, which read these."""

    variables: tuple[Variable, ...]
    extremes: ByState
    shown: ByState

    @property
    def choice(self) -> tuple[Reference, tuple[int, ...]] | None:
        """Where what is shown is one of the extremes, that and its columns: it needs no state of its own."""
        program, read = self.shown.program, self.shown.outside[0] if len(self.shown.outside) == 1 else None
        if len(program.rules) != 1 or not isinstance(read, Reference):
            return None
        rule = program.rules[0]
        chosen = [place[1] for place in rule.chosen if place is not None]
        simple = not rule.computes and not rule.equal and len(rule.atoms) == 1
        keys = set(range(len(read.schema.columns) - 1))
        return (read, tuple(chosen)) if simple and keys <= set(chosen) else None


def by_extremes(plan: Recursion) -> ByExtremes | str:
    """The rules of a recursion of minima or maxima; or, in words, why it cannot be kept by state."""
    if not plan.why.endswith(IMPROVES) or plan.at_limit == "return":
        return "its rounds count"
    try:
        return _made(plan)
    except Kept as why:
        return str(why)


@dataclass(frozen=True)
class _Extreme:
    """The least or greatest values (the last column) of the rows of `bodies`."""

    read: Reference
    function: str
    bodies: tuple[Body, ...]


def _made(plan: Recursion) -> ByExtremes:
    """Both programs. Raises Kept."""
    group = _Extremes(plan)
    rules = zip(plan.variables, plan.rules, strict=True)
    bodies = {v: list(group.bodies(rule, conditions=True, values=True)) for v, rule in rules}
    if group.failing:
        raise Kept("a value that may fail is computed before rows are joined or left out")
    extremes = list(group.found.values())
    if not extremes or len({e.function for e in extremes}) > 1:
        raise Kept("its rounds count")
    unfolding = _Unfolding(extremes, bodies)
    variables = tuple(e.read.variable for e in extremes)
    first = Group(plan.variables, variables)
    made = []
    for head, extreme in enumerate(extremes):
        for body in extreme.bodies:
            for whole in unfolding.unfolded(body, ()):
                _check_strict(whole, variables)
                made.append(first.rule(head, whole))
                if len(made) > MOST_RULES:
                    raise Kept(f"it has more than {MOST_RULES} rules")
    # A round of the loop makes what the extremes are of, and the next one the extremes.
    schemas = [Schema(e.read.schema.columns) for e in extremes]
    sign = 1 if extremes[0].function == "min" else -1
    kept = first.program(schemas, made, plan.rounds // 2 + 2, sign)
    shown = plan.variables[plan.shown]
    second = Group(plan.variables, (shown,), variables)
    over = [second.rule(0, _silent(b)) for body in bodies[shown] for b in unfolding.unfolded(body, (shown,))]
    schema = Schema(plan.rules[plan.shown].schema.columns)
    return ByExtremes(variables, kept, second.program([schema], over, _ONCE))


class _Extremes(Group):
    """The bodies of a group; in the place of each aggregate of its own relations stands a variable of its own."""

    def __init__(self, plan: Recursion) -> None:
        super().__init__(plan.variables, plan.variables)
        self.found: dict[str, _Extreme] = {}
        # A space, so that no relation has the name; the digest, so that no other recursion's extreme does.
        self._name = f"extreme {plan.digest[:16]}"
        self._level = plan.variables[0].level

    def bodies(self, plan: Plan, *, conditions: bool = False, values: bool = False) -> Iterator[Body]:
        """As `Group.bodies`. Raises Kept."""
        if not isinstance(plan, Reduce) or plan.free.isdisjoint(self.own):
            yield from super().bodies(plan, conditions=conditions, values=values)
            return
        used = [a for a in plan.aggregates if a.function in ("min", "max")]
        others = [
            a for a in plan.aggregates if a not in used and (a.function, a.arg, a.filter) != ("count", None, None)
        ]
        if len(used) != 1 or others or not plan.key or used[0].filter is not None or used[0].arg is None:
            raise Kept("its rounds count")
        if used[0].type.kind not in _ORDERED:
            raise Kept(f"its extreme is {used[0].type}")
        width, place = len(plan.key), plan.aggregates.index(used[0])
        held = (*range(width), width + place)
        found = self.found.get(plan.digest)
        if found is None:
            variable = Variable(f"{self._name} {len(self.found) + 1}", self._level)
            read = Reference(variable, Schema(tuple(plan.schema.columns[k] for k in held)))
            inner = tuple(
                replace(b, columns=(*(b.columns[k] for k in plan.key), substituted(used[0].arg, b.columns)))
                for b in super().bodies(plan.input, conditions=True, values=True)
            )
            found = self.found[plan.digest] = _Extreme(read, used[0].function, inner)
        refs = identity(found.read.schema)[0]
        # A group that is there has rows.
        counts: list[Expr] = [Literal(1, a.type) for a in plan.aggregates]
        counts[place] = refs[-1]
        yield replace(leaf_body(found.read), columns=(*refs[:-1], *counts))


class _Unfolding:
    """Relations in the place of which their bodies stand, but for extremes."""

    def __init__(self, extremes: Sequence[_Extreme], bodies: Bodies) -> None:
        self._extremes = {e.read.variable: e for e in extremes}
        self._bodies = bodies

    def unfolded(self, body: Body, within: tuple[Variable, ...]) -> Iterator[Body]:
        """The bodies over extremes and what is outside; `within`: the relations that are being unfolded. Raises Kept."""
        body = self.pruned(body)
        at = next((k for k, leaf in enumerate(body.leaves) if self._is_unfolded(leaf)), None)
        if at is None:
            yield body
            return
        leaf = body.leaves[at]
        assert isinstance(leaf, Reference)
        if leaf.variable in within:
            raise Kept(f"{leaf.variable.name} goes on in its own recursion without its extreme")
        alone = len(body.leaves) == 1 and not (body.conditions or body.equal or body.negated or body.guards)
        for inner in self._bodies[leaf.variable]:
            if not alone and any(map(fallible, (*inner.columns, *inner.conditions))):
                raise Kept("a value that may fail is computed before rows are joined or left out")
            for made in self.unfolded(inner, (*within, leaf.variable)):
                yield from self.unfolded(_with(body, at, made), within)

    def _is_unfolded(self, leaf: Plan) -> bool:
        return isinstance(leaf, Reference) and leaf.variable in self._bodies

    def pruned(self, body: Body) -> Body:
        """Without the rows that must be there because there is an extreme of them."""
        for at, leaf in enumerate(body.leaves):
            for other, extreme in enumerate(body.leaves):
                if (
                    isinstance(leaf, Reference)
                    and isinstance(extreme, Reference)
                    and extreme.variable in self._extremes
                ):
                    to = self._implied(body, at, other, leaf, self._extremes[extreme.variable])
                    if to is not None:
                        return self.pruned(_without(body, at, to))
        return body

    def _implied(self, body: Body, at: int, other: int, leaf: Reference, extreme: _Extreme) -> dict[int, int] | None:
        """Of a leaf's columns that are read the extreme's, if each row of the extreme has such a row; else None."""
        starts = _starts(body)
        read = {c - starts[at] for c in _read(body) if starts[at] <= c < starts[at] + len(leaf.schema.columns)}
        equal = {frozenset(pair) for pair in body.equal}
        found: dict[int, int] = {}
        for inner in extreme.bodies:
            whole = [k for k, some in enumerate(inner.leaves) if some == leaf]
            if len(whole) != 1:
                return None
            begin = _starts(inner)[whole[0]]
            keys = {e.index - begin: k for k, e in enumerate(inner.columns[:-1]) if isinstance(e, ColumnRef)}
            to = {c: starts[other] + keys[c] for c in read if c in keys}
            if len(to) < len(read) or (found and to != found):
                return None
            found = to
        if not all(frozenset((starts[at] + c, place)) in equal for c, place in found.items()):
            return None
        return {starts[at] + c: place for c, place in found.items()}


def _starts(body: Body) -> list[int]:
    """The place of each leaf's first column."""
    found = [0]
    for leaf in body.leaves:
        found.append(found[-1] + len(leaf.schema.columns))
    return found


def _read(body: Body) -> set[int]:
    """The columns that a body reads."""
    found = set[int]().union(*(columns(e) for e in (*body.columns, *body.conditions, *body.guards)))
    return found.union(*body.equal, *(places for _, places in body.negated))


def _changed(body: Body, leaves: Sequence[Plan], exprs: Sequence[Expr]) -> Body:
    """The body over other leaves, its columns being `exprs` over these. Raises Kept for one that is a key and computed."""
    pairs = [(place_of(exprs[a]), place_of(exprs[b])) for a, b in body.equal]
    return Body(
        tuple(leaves),
        tuple(substituted(e, exprs) for e in body.columns),
        tuple(pair for pair in pairs if pair[0] != pair[1]),
        tuple(substituted(e, exprs) for e in body.conditions),
        tuple((plan, tuple(place_of(exprs[c]) for c in places)) for plan, places in body.negated),
        tuple(substituted(e, exprs) for e in body.guards),
    )


def _refs(body: Body) -> list[Expr]:
    return [ColumnRef(k, c.type) for k, c in enumerate(c for leaf in body.leaves for c in leaf.schema.columns)]


def _without(body: Body, at: int, to: Mapping[int, int]) -> Body:
    """The body without a leaf, whose columns are read from other ones."""
    start, width = _starts(body)[at], len(body.leaves[at].schema.columns)

    def place(column: int) -> int:
        return column - width if column >= start + width else column

    exprs: list[Expr] = []
    for column, ref in enumerate(_refs(body)):
        stands = to.get(column, 0) if start <= column < start + width else column
        exprs.append(ColumnRef(place(stands), ref.type))
    return _changed(body, [leaf for k, leaf in enumerate(body.leaves) if k != at], exprs)


def _with(body: Body, at: int, inner: Body) -> Body:
    """The body with another in the place of a leaf."""
    start, width = _starts(body)[at], len(body.leaves[at].schema.columns)
    rest = [leaf for k, leaf in enumerate(body.leaves) if k != at]
    behind = sum(len(leaf.schema.columns) for leaf in rest)
    exprs: list[Expr] = []
    for column, ref in enumerate(_refs(body)):
        if start <= column < start + width:
            exprs.append(shifted(inner.columns[column - start], behind))
        else:
            exprs.append(ColumnRef(column - width if column >= start + width else column, ref.type))
    made = _changed(body, [*rest, *inner.leaves], exprs)
    return Body(
        made.leaves,
        made.columns,
        (*made.equal, *((a + behind, b + behind) for a, b in inner.equal)),
        (*(shifted(e, behind) for e in inner.conditions), *made.conditions),
        (*made.negated, *((p, tuple(c + behind for c in places)) for p, places in inner.negated)),
        (*(shifted(e, behind) for e in inner.guards), *made.guards),
    )


def _silent(body: Body) -> Body:
    """The body, of whose rows those that fail are told elsewhere."""
    failing = (*(e for e in body.conditions if fallible(e)), *(e for e in body.columns if fallible(e)))
    return replace(body, guards=(*body.guards, *failing))


def _check_strict(body: Body, extremes: Sequence[Variable]) -> None:
    """Raises Kept for a rule that does not hand each extreme on, a better one as a better one, or does anything else with it."""
    starts = _starts(body)
    values = {
        starts[k] + len(leaf.schema.columns) - 1
        for k, leaf in enumerate(body.leaves)
        if isinstance(leaf, Reference) and leaf.variable in extremes
    }
    *keys, value = body.columns
    compared = set[int]().union(*body.equal, *(places for _, places in body.negated), *map(columns, keys))
    if values & compared:
        raise Kept("an extreme is compared with one value")
    if _rising(value, values) != values:
        raise Kept("an extreme is read and not handed on")


def _rising(expr: Expr, values: set[int]) -> set[int]:
    """The columns among `values` with each of which an expression rises strictly. Raises Kept for one that it reads otherwise."""
    if isinstance(expr, ColumnRef):
        return {expr.index} & values
    if not columns(expr) & values:
        return set()
    if isinstance(expr, Cast) and expr.type.kind in WHOLE and expr.arg.type.kind in WHOLE:
        return _rising(expr.arg, values)
    name = base_name(expr) if isinstance(expr, Call) else ""
    if isinstance(expr, Call) and expr.type.kind in _ORDERED and len(expr.args) == 2:
        one, other = expr.args
        if name == "+":
            return _rising(one, values) | _rising(other, values)
        factor, rest = (one, other) if isinstance(one, Literal) else (other, one)
        if name == "*" and isinstance(factor, Literal) and isinstance(factor.value, int) and factor.value > 0:
            return _rising(rest, values)
    raise Kept("an extreme is computed with otherwise than by adding to it, or multiplying it by a number")


__all__ = ["ByExtremes", "by_extremes"]
