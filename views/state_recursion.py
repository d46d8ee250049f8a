"""A recursion as rules that the engine keeps by state, or why its rounds are kept instead.

A rule is a choice of one input of each union in the body of a variable: leaves joined on columns, conditions, values. Leaves are
variables of the recursion, and plans that read none of them. Invariant: what the rules give is what the plan gives, errors
of rows too: an expression that may fail is evaluated for the same rows. Called by render and explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeGuard

from headrace.engine.operators.expressions.core.ir import Call, Cast, ColumnRef, Expr, Literal
from headrace.engine.recursion.program import Atom, Place, Program, Rule
from headrace.engine.schema import BOOLEAN, Column, DataType, Kind, Schema
from headrace.views.expressions import columns, conjunction, conjuncts, fallible, moved, shifted, substituted
from headrace.views.plan import (
    DeltaJoin,
    Distinct,
    Filter,
    Join,
    LeftJoin,
    One,
    Plan,
    Project,
    Recursion,
    Reference,
    Semijoin,
    Union,
    identity,
)
from headrace.views.plan_node import Variable
from headrace.views.recursion import looks_different

WHOLE = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)

_CONSTANT = (*WHOLE, Kind.TEXT, Kind.BOOLEAN, Kind.DATE)

MOST_RULES = 64
_MOST_COLUMNS = 60


@dataclass(frozen=True)
class ByState:
    """The rules, and the plans that are read from outside, by their numbers."""

    program: Program
    outside: tuple[Plan, ...]


def by_state(plan: Recursion) -> ByState | str:
    """The rules of a recursion; or, in words, why it cannot be kept by state."""
    try:
        if plan.why or plan.at_limit == "return":
            return "its rounds count"
        if any(plan.starts) or "working table" in plan.kinds_of or ("sum" in plan.kinds_of and len(plan.kinds_of) > 1):
            return "its rounds count"
        return Group(plan.variables, plan.variables, copies=plan.kinds_of == ("sum",)).by_state(plan)
    except Kept as why:
        return str(why)


class Kept(Exception):
    """Why the rounds are kept."""


@dataclass(frozen=True)
class Body:
    """Leaves beside each other, their columns numbered through; `equal`: pairs of them; `columns`: what the body puts out.

    `negated`: plans of which no row may have the values of some columns. `guards`: what is computed below; where one fails there
    is no row, which another rule tells.
    """

    leaves: tuple[Plan, ...]
    columns: tuple[Expr, ...]
    equal: tuple[tuple[int, int], ...] = ()
    conditions: tuple[Expr, ...] = ()
    negated: tuple[tuple[Plan, tuple[int, ...]], ...] = ()
    guards: tuple[Expr, ...] = ()

    @property
    def width(self) -> int:
        """How many columns the leaves have."""
        return sum(len(leaf.schema.columns) for leaf in self.leaves)

    def beside(self, other: Body) -> Body:
        """Both, the other's columns behind one's own."""
        by = self.width
        return Body(
            (*self.leaves, *other.leaves),
            (*self.columns, *(shifted(e, by) for e in other.columns)),
            (*self.equal, *((a + by, b + by) for a, b in other.equal)),
            (*self.conditions, *(shifted(e, by) for e in other.conditions)),
            (*self.negated, *((p, tuple(c + by for c in at)) for p, at in other.negated)),
            (*self.guards, *(shifted(e, by) for e in other.guards)),
        )


class Group:
    """Works one recursion out. `own`: its variables; `heads`: those that rules make, by their numbers; `given`: others that are
    read as they stand outside.
    """

    def __init__(
        self,
        own: Sequence[Variable],
        heads: Sequence[Variable],
        given: Sequence[Variable] = (),
        *,
        copies: bool = False,
    ) -> None:
        self.own = frozenset(own)
        self.copies = copies
        self.numbers = {v: k for k, v in enumerate(heads)}
        self.given = frozenset(given)
        self.outside: dict[str, tuple[int, Plan]] = {}
        self.failing: dict[str, Plan] = {}
        """What is computed below, or left out, and may fail there."""

    def by_state(self, plan: Recursion) -> ByState:
        """All of its rules. Raises Kept."""
        rules: list[Rule] = []
        for head, rule in enumerate(plan.rules):
            bodies = list(self.bodies(rule, conditions=True, values=True))
            if len(rules) + len(bodies) > MOST_RULES:
                raise Kept(f"it has more than {MOST_RULES} rules")
            rules += [self.rule(head, body) for body in bodies]
        told: dict[str, Plan] = {}
        while len(told) < len(self.failing):
            # To tell what fails in one may need another below it.
            for digest, below in [(d, p) for d, p in self.failing.items() if d not in told]:
                told[digest] = below
                rules += [self.rule(-1, body) for body in self.telling(below)]
        # In the first round a loop's variables are empty, and it takes one round more than its limit.
        return self.program([Schema(rule.schema.columns) for rule in plan.rules], rules, plan.rounds + 2)

    def program(self, heads: Sequence[Schema], rules: Sequence[Rule], last: int, extreme: int = 0) -> ByState:
        """Rules, with what they read from outside. Raises Kept."""
        if len(rules) > MOST_RULES:
            raise Kept(f"it has more than {MOST_RULES} rules")
        for schema in heads:
            if len(schema.columns) > _MOST_COLUMNS:
                raise Kept(f"it has more than {_MOST_COLUMNS} columns")
            for column in schema.columns:
                _check_type(column)
        plans = tuple(p for _, p in self.outside.values())
        schemas = (*heads, *(Schema(p.schema.columns) for p in plans))
        return ByState(Program(schemas, len(heads), tuple(rules), last, self.copies, extreme), plans)

    # Bodies.

    def bodies(self, plan: Plan, *, conditions: bool = False, values: bool = False) -> Iterator[Body]:
        """The bodies whose rows together are the plan's, copies apart. Raises Kept.

        Whether conditions and computed values may fail here: a rule meets conditions when all rows are joined, one after the
        other, and computes values last.
        """
        outside = plan.free.isdisjoint(self.own) and (self.copies or not isinstance(plan, Union | Distinct))
        if outside or isinstance(plan, Reference):
            yield leaf_body(plan)
        elif isinstance(plan, Distinct) and self.copies:
            raise Kept(f"the rows of the recursion go through {_word(plan)}")
        elif isinstance(plan, Distinct | DeltaJoin):
            yield from self.bodies(plan.input, conditions=conditions, values=values)
        elif isinstance(plan, Union):
            for below in plan.inputs:
                yield from self.bodies(below, conditions=conditions, values=values)
        elif isinstance(plan, Project):
            failing = () if values else tuple(e for e in plan.exprs if fallible(e))
            if failing:
                self.failing[plan.digest] = plan
            # What fails here is told before any condition below is met, and of rows that this one does not get.
            for body in self.bodies(plan.input, conditions=conditions and not failing):
                guards = (*body.guards, *(substituted(e, body.columns) for e in failing))
                yield replace(body, columns=tuple(substituted(e, body.columns) for e in plan.exprs), guards=guards)
        elif isinstance(plan, Filter):
            failing = () if conditions or not fallible(plan.predicate) else (plan.predicate,)
            if failing:
                self.failing[plan.digest] = plan
            for body in self.bodies(plan.input, conditions=conditions):
                guards = (*body.guards, *(substituted(e, body.columns) for e in failing))
                found = (*body.conditions, substituted(plan.predicate, body.columns))
                yield replace(body, conditions=found, guards=guards)
        elif isinstance(plan, Join):
            yield from self.joined(plan, conditions=conditions)
        elif isinstance(plan, Semijoin):
            yield from self.semijoined(plan)
        elif isinstance(plan, LeftJoin):
            yield from self.outer_joined(plan)
        else:
            raise Kept(f"the rows of the recursion go through {_word(plan)}")

    def telling(self, plan: Plan) -> Iterator[Body]:
        """The bodies of which a value or condition may fail, to tell of that alone."""
        assert isinstance(plan, Project | Filter)
        for body in self.bodies(plan.input):
            if isinstance(plan, Filter):
                found = (*body.conditions, substituted(plan.predicate, body.columns))
                yield replace(body, columns=(), conditions=found)
            else:
                yield replace(body, columns=tuple(substituted(e, body.columns) for e in plan.exprs if fallible(e)))

    def joined(self, plan: Join, *, conditions: bool = False) -> Iterator[Body]:
        """Pairs of rows."""
        if plan.residual is not None and fallible(plan.residual) and not conditions:
            yield from self.bodies(Filter(replace(plan, residual=None), plan.residual))
            return
        for left, right in product(*(list(self.bodies(p)) for p in (plan.left, plan.right))):
            body = left.beside(right)
            width = len(left.columns)
            pairs = [
                (place_of(body.columns[a]), place_of(body.columns[width + b]))
                for a, b in zip(plan.left_key, plan.right_key, strict=True)
            ]
            body = replace(body, equal=(*body.equal, *pairs))
            if plan.residual is not None:
                body = replace(body, conditions=(*body.conditions, substituted(plan.residual, body.columns)))
            yield body

    def semijoined(self, plan: Semijoin) -> Iterator[Body]:
        """Rows that have a partner, or have none."""
        right: Plan = Project(plan.right, *identity(plan.right.schema, plan.right_key))
        if not plan.negated:
            if self.copies:
                if not plan.right.free.isdisjoint(self.own):
                    raise Kept("rows are looked for among those of the recursion, whose copies count")
                right = Distinct(right)
            for body in self.joined(Join(plan.left, right, plan.left_key, tuple(range(len(plan.right_key))))):
                yield replace(body, columns=body.columns[: len(plan.left.schema.columns)])
            return
        if not plan.right.free.isdisjoint(self.own):
            raise Kept("rows of the recursion are looked for and must not be there")
        for body in self.bodies(plan.left):
            places = tuple(place_of(body.columns[k]) for k in plan.left_key)
            yield replace(body, negated=(*body.negated, (right, places)))

    def outer_joined(self, plan: LeftJoin) -> Iterator[Body]:
        """Pairs, and left rows without a partner."""
        if plan.full or plan.residual is not None or not plan.right.free.isdisjoint(self.own):
            raise Kept("the rows of the recursion go through an outer join with a condition")
        yield from self.joined(Join(plan.left, plan.right, plan.left_key, plan.right_key))
        alone = Semijoin(plan.left, plan.right, plan.left_key, plan.right_key, negated=True)
        missing = tuple(Literal(None, c.type) for c in plan.right.schema.columns)
        for body in self.semijoined(alone):
            yield replace(body, columns=(*body.columns, *missing))

    # Rules.

    def rule(self, head: int, body: Body) -> Rule:
        """A body as a rule: of outside plans only the columns that are read, each plan once."""
        body = _joined_with_constants(body)
        read = set[int]().union(*(columns(e) for e in (*body.conditions, *body.columns, *body.guards)))
        read |= {c for pair in body.equal for c in pair}
        read |= {c for _, places in body.negated for c in places}
        atoms: list[Atom] = []
        places: dict[int, Place] = {}
        kinds: dict[int, DataType] = {}
        at = 0
        for number, leaf in enumerate(body.leaves):
            width = len(leaf.schema.columns)
            held = [c - at for c in sorted(read) if at <= c < at + width]
            if not isinstance(leaf, Reference):
                leaf = _cut(leaf, held)
            else:
                held = list(range(width))
            for k, column in enumerate(held):
                places[at + column] = number, k
                kinds[at + column] = leaf.schema.columns[k].type
                _check_type(leaf.schema.columns[k])
            atoms.append(Atom(self.relation(leaf)))
            at += width
        for plan, some in body.negated:
            plan = _cut(plan, range(len(some)))
            for place, told in zip(some, plan.schema.columns, strict=False):
                _check_type(told)
                _check_same(kinds[place], told.type)
            atoms.append(Atom(self.relation(plan), tuple(places[c] for c in some)))
        for one, other in body.equal:
            _check_same(kinds[one], kinds[other])
        order = sorted(places)
        to = {c: k for k, c in enumerate(order)}
        return Rule(
            head,
            tuple(atoms),
            _classes([(places[a], places[b]) for a, b in body.equal]),
            tuple(places[c] for c in order),
            tuple(moved(e, to) for e in body.conditions),
            tuple(moved(e, to) for e in body.columns),
            tuple(moved(e, to) for e in body.guards),
        )

    def relation(self, leaf: Plan) -> int:
        """The number of a leaf's relation."""
        if isinstance(leaf, Reference) and leaf.variable in self.numbers:
            return self.numbers[leaf.variable]
        if isinstance(leaf, Reference) and leaf.variable not in self.given:
            raise Kept("it reads the rows of a recursion around it")
        if len(leaf.schema.columns) > _MOST_COLUMNS:
            raise Kept(f"it reads more than {_MOST_COLUMNS} columns")
        known = self.outside.setdefault(leaf.digest, (len(self.numbers) + len(self.outside), leaf))
        return known[0]


def _joined_with_constants(body: Body) -> Body:
    """The constants that columns must equal, and that a rule gives, as a leaf of one row that is joined and looked up by.

    A condition behind one that may fail stays, as it is not met for the rows that fail.
    """
    if not any(isinstance(leaf, Reference) for leaf in body.leaves):
        return body
    found: dict[Literal, int] = {}
    conditions: list[Expr] = []
    pairs: list[tuple[int, int]] = []
    for condition in body.conditions:
        if any(map(fallible, (*conditions, condition))):
            conditions.append(condition)
            continue
        rest: list[Expr] = []
        for part in conjuncts(condition):
            if told := _equal_to_constant(part):
                pairs.append((told[0], found.setdefault(told[1], body.width + len(found))))
            else:
                rest.append(part)
        conditions += filter(None, [conjunction(rest)])
    values = [
        ColumnRef(found.setdefault(e, body.width + len(found)), e.type) if _is_joinable(e) else e for e in body.columns
    ]
    if not found:
        return body
    leaf = Project(One(), tuple(found), tuple(f"constant_{k}" for k in range(len(found))))
    return replace(
        body,
        leaves=(*body.leaves, leaf),
        columns=tuple(values),
        equal=(*body.equal, *pairs),
        conditions=tuple(conditions),
    )


def _equal_to_constant(expr: Expr) -> tuple[int, Literal] | None:
    """The column and the constant of a condition `column = constant`."""
    if not isinstance(expr, Call) or not expr.function.startswith("=(") or len(expr.args) != 2:
        return None
    one, other = expr.args if isinstance(expr.args[0], ColumnRef) else expr.args[::-1]
    if isinstance(one, ColumnRef) and _is_joinable(other) and one.type == other.type:
        return one.index, other
    return None


def _is_joinable(expr: Expr) -> TypeGuard[Literal]:
    """Whether it is a constant of a type whose equal values look alike."""
    return isinstance(expr, Literal) and expr.value is not None and expr.type.kind in _CONSTANT


def _cut(plan: Plan, held: Sequence[int]) -> Plan:
    """Some columns of a plan; a constant where there is none, for a relation has columns."""
    if not held:
        return Project(plan, (Literal(True, BOOLEAN),), ("row",))
    return plan if len(held) == len(plan.schema.columns) else Project(plan, *identity(plan.schema, held))


def leaf_body(plan: Plan) -> Body:
    """The rows of a plan as they are."""
    return Body((plan,), identity(plan.schema)[0])


def place_of(expr: Expr) -> int:
    """The column of a key: the column itself, or an integer cast to a wider one. Raises Kept."""
    while isinstance(expr, Cast) and expr.type.kind in WHOLE and expr.arg.type.kind in WHOLE and not fallible(expr):
        expr = expr.arg
    if not isinstance(expr, ColumnRef):
        raise Kept("rows are joined by a computed value")
    return expr.index


def _check_type(column: Column) -> None:
    """Raises Kept for a type whose equal values may look different."""
    kind = column.type
    if looks_different(kind) or kind.kind in (Kind.JSON, Kind.JSONB):
        raise Kept(f"equal values of {column.name} may look different")


def _check_same(one: DataType, other: DataType) -> None:
    """Raises Kept where equal values of two columns may be held differently."""
    whole = one.kind in WHOLE and other.kind in WHOLE
    if not whole and (one.arrow != other.arrow or (one.kind is Kind.BPCHAR) != (other.kind is Kind.BPCHAR)):
        raise Kept(f"{one} is joined with {other}")


def _classes(pairs: Sequence[tuple[Place, Place]]) -> tuple[tuple[Place, ...], ...]:
    """What must be equal to one another."""
    classes: list[set[Place]] = []
    for one, other in pairs:
        mine = [c for c in classes if one in c or other in c]
        classes = [c for c in classes if c not in mine]
        classes.append({one, other}.union(*mine))
    return tuple(tuple(sorted(c)) for c in classes)


_WORDS: dict[str, str] = {
    "Distinct": "DISTINCT",
    "Spread": "a set-returning function",
    "Repeat": "copies of rows",
    "Reduce": "groups",
    "Top": "DISTINCT ON or LIMIT",
    "Windowed": "a window function",
    "Recursion": "a recursion within",
}


def _word(plan: Plan) -> str:
    return _WORDS.get(type(plan).__name__, type(plan).__name__)


__all__ = ["MOST_RULES", "WHOLE", "Body", "ByState", "Group", "Kept", "by_state", "leaf_body", "place_of"]
