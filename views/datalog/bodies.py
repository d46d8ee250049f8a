"""A rule's body as a plan: atoms are joined, variables are columns, conditions filter, negations are semijoins.

Atoms come first, then what gives variables their values, then conditions, negations and aggregates, each as soon as its
variables are bound. Invariant: a variable that nothing binds is an error that names it. NULL joins nothing, as in SQL. Called
by `relations`, a rule at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from headrace.engine.operators.expressions.core.ir import Aggregate as KeptAggregate
from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr
from headrace.views.datalog.context import Context
from headrace.views.datalog.expressions import Read, Reader, State, equals
from headrace.views.datalog.functors import end_of_range
from headrace.views.datalog.join_keys import keyed, matched
from headrace.views.datalog_text.syntax import (
    Aggregate,
    Atom,
    Condition,
    Expression,
    Literal,
    Negative,
    Positive,
    Rule,
    expressions_of,
)
from headrace.views.expressions import conjunction
from headrace.views.plan import Distinct, Filter, Join, LeftJoin, One, Plan, Project, Semijoin, identity
from headrace.views.sql.aggregates.grouping import Grouping
from headrace.views.sql.binder import Binder
from headrace.views.sql.from_clause.set_returning import SetCalls
from headrace.views.sql.queries import bind_query
from headrace.views.sql.subqueries.subquery_binder import Subqueries

Plans = Mapping[str, tuple[Plan, tuple[str, ...]]]
"""Of each relation the rows and the names of its columns."""


@dataclass(frozen=True)
class _Equal:
    """That a column of an atom equals an expression, some variables of which are bound later."""

    position: int
    value: Expression
    read: Read


def variables_of(rule: Rule) -> frozenset[str]:
    """The names that stand alone in an atom's argument or beside an `=`, in the rule's body and its aggregates."""
    return frozenset(_alone(rule.body)) | frozenset(
        a.value.variable for a in rule.head.arguments if a.value is not None and a.value.variable is not None
    )


def _alone(body: Sequence[Literal]) -> Iterator[str]:
    for literal in body:
        sides = list(expressions_of(literal))
        if isinstance(literal, Condition):
            sides += literal.expression.equated() or ()
        yield from (s.variable for s in sides if s.variable is not None)
        for expression in sides:
            for aggregate in expression.aggregates:
                yield from _alone(aggregate.body)
                if aggregate.value is not None and aggregate.value.variable is not None:
                    yield aggregate.value.variable


class Body:
    """Binds the literals of one rule, or of one aggregate in it. `around`: the variables of the rule outside of its
    aggregates, which mean the same inside. `joined_at`: of each atom the place of its first column in the rows.
    """

    def __init__(self, context: Context, rule: Rule, plans: Plans, reader: Reader, around: frozenset[str]) -> None:
        self.context = context
        self.rule = rule
        self.plans = plans
        self.reader = reader
        self.around = around
        self.joined_at: list[tuple[Atom, int]] = []
        self.given: dict[Aggregate, str] = {}
        """The variable that only the equation of an aggregate gives a value: inside of it the name means another."""

    def bind(self, literals: Sequence[Literal], state: State) -> State:
        """The rows for which all literals hold. Raises ViewError."""
        atoms = [x.atom for x in literals if isinstance(x, Positive) and x.atom.name in self.plans]
        negated = [x.atom for x in literals if isinstance(x, Negative) and x.atom.name in self.plans]
        rest: list[Expression | _Equal] = [_test(x) for x in literals if _is_test(x, self.plans)]
        self.given = _given_by_aggregates(literals, self.plans)
        while atoms:
            atom = next((a for a in atoms if self.shares(a, state)), atoms[0])
            atoms.remove(atom)
            state, later = self.joined(atom, state)
            rest += later
        return self.rested(rest, negated, state)

    def rested(self, rest: list[Expression | _Equal], negated: list[Atom], state: State) -> State:
        """The rows for which conditions and negations hold too, each bound when its variables are."""
        while rest or negated:
            ready = next((x for x in rest if self.conditioned(x, state) is not None), None)
            if ready is not None:
                found = self.conditioned(ready, state)
                assert found is not None, "it was just there"
                rest.remove(ready)
                state = found
                continue
            atom = next((a for a in negated if not self.missing(self.reads_of(a), state)), None)
            if atom is not None:
                negated.remove(atom)
                state = self.less(atom, state)
                continue
            values = [x.value if isinstance(x, _Equal) else x for x in rest]
            values += [a.value for atom in negated for a in atom.arguments if a.value is not None]
            with_aggregates = next((x for x in values if self.aggregable(x, state)), None)
            if with_aggregates is None:
                self.refuse_unbound(rest, negated, state)
            for aggregate in with_aggregates.aggregates:
                if self.reader.name_of(aggregate) not in state.places:
                    state = self.aggregated(aggregate, state)
        return state

    # Variables.

    def shares(self, atom: Atom, state: State) -> bool:
        """Whether an atom reads a variable that is bound."""
        return any(a.value is not None and a.value.variable in state.places for a in atom.arguments)

    def reads_of(self, atom: Atom) -> list[str]:
        """The variables and aggregates in an atom's arguments."""
        return [v for a in atom.arguments if a.value is not None for v in self.reader.read(a.value).variables]

    def missing(self, names: Sequence[str], state: State) -> list[str]:
        """Those that nothing has bound yet."""
        return [n for n in names if n not in state.places]

    def refuse_unbound(self, rest: Sequence[Expression | _Equal], negated: Sequence[Atom], state: State) -> NoReturn:
        """Says which variables nothing binds, and what would. Raises ViewError."""
        found: dict[str, int] = {}
        for item in rest:
            read = item.read if isinstance(item, _Equal) else self.reader.read(item)
            value = item.value if isinstance(item, _Equal) else item
            at = item.start if isinstance(item, Expression) else self.rule.start
            inner = [v for a in value.aggregates for v in self.outer_of(a)]
            # What an equation would give a value is not to blame.
            given = {s.variable for s, _ in _sides(item)} if isinstance(item, Expression) else set()
            unbound = self.missing([*read.variables, *inner], state)
            for name in [n for n in unbound if n not in given] or unbound:
                found.setdefault(name, at)
        for atom in negated:
            for name in self.missing(self.reads_of(atom), state):
                found.setdefault(name, atom.start)
        self.refuse_variables({n: at for n, at in found.items() if not n.startswith("$")})

    def refuse_variables(self, found: Mapping[str, int]) -> NoReturn:
        """Says that these have no value. Raises ViewError."""
        known = dict(found) or {self.rule.head.name: self.rule.start}
        names = ", ".join(known)
        one = len(known) == 1
        reason = f"variable {names} is not bound" if one else f"variables {names} are not bound"
        first = next(iter(known))
        hint = f"add an atom that has it, relation({first}, …), or an equation {first} = … of bound variables"
        if first in _alone_in_aggregates(self.rule):
            hint += "; what an aggregate binds stays within its braces"
        raise self.context.error(known[first], reason, hint, self.rule.text)

    # Atoms.

    def arranged(self, atom: Atom) -> list[tuple[int, Expression, int]]:
        """The column, the expression and the place of each argument that is not `_`."""
        names = self.plans[atom.name][1]
        return [
            (names.index(a.name) if a.name is not None else place, a.value, a.start)
            for place, a in enumerate(atom.arguments)
            if a.value is not None
        ]

    def joined(self, atom: Atom, state: State) -> tuple[State, list[_Equal]]:
        """The rows joined with an atom, and what is to hold once its variables are bound."""
        right = self.plans[atom.name][0]
        first = isinstance(state.plan, One)
        width = 0 if first else len(state.plan.schema.columns)
        plan = right if first else Join(state.plan, right, at=atom.start)
        self.joined_at.append((atom, width))
        places = dict(state.places)
        conditions: list[Expr] = []
        later: list[_Equal] = []
        for column, value, _ in self.arranged(atom):
            position = width + column
            if value.variable is not None and value.variable not in places and not value.aggregates:
                places[value.variable] = position
                continue
            same = equals(position, self.reader.read(value))
            now = State(plan, places)
            if self.missing(same.variables, now):
                later.append(_Equal(position, value, same))
            else:
                conditions.append(self.reader.truth(now, same))
        predicate = conjunction(conditions)
        if predicate is not None:
            plan = Filter(plan, predicate) if first else Join(state.plan, right, residual=predicate, at=atom.start)
        return State(plan, places), later

    def less(self, atom: Atom, state: State) -> State:
        """The rows for which a relation has no such row."""
        right = self.plans[atom.name][0]
        width = len(state.plan.schema.columns)
        both = State(Join(state.plan, right), state.places)
        pairs = [
            self.reader.truth(both, equals(width + column, self.reader.read(value)))
            for column, value, _ in self.arranged(atom)
        ]
        left, among, left_key, right_key = keyed(state.plan, right, pairs)
        kept = Semijoin(left, among, left_key, right_key, negated=True)
        return State(Project(kept, *identity(kept.schema, range(width))), state.places)

    # Conditions.

    def conditioned(self, item: Expression | _Equal, state: State) -> State | None:
        """The rows for which a condition holds, or with what an equation gives a variable; None where it must wait."""
        if isinstance(item, _Equal):
            if self.missing(item.read.variables, state):
                return None
            return State(Filter(state.plan, self.reader.truth(state, item.read)), state.places)
        read = self.reader.read(item)
        if not self.missing(read.variables, state):
            return State(Filter(state.plan, self.reader.truth(state, read)), state.places)
        for one, other in _sides(item):
            name = one.variable
            if name is not None and name not in state.places:
                value = self.reader.read(other)
                if not self.missing(value.variables, state):
                    return self.extended(state, name, other)
        return None

    def extended(self, state: State, name: str, value: Expression) -> State:
        """The rows with one column more, which a variable names; of a function that returns a set there is a row for each
        value."""
        found = self.reader.bind_set(state, name, self.reader.read(value))
        if (end := end_of_range(value)) is not None:
            found = State(Filter(found.plan, self.reader.truth(found, self.reader.differs(name, end))), found.places)
        return found

    # Aggregates.

    def outer_of(self, aggregate: Aggregate) -> list[str]:
        """The variables of an aggregate that the rule has outside of it."""
        names = list(_names(aggregate.body, self.reader))
        if aggregate.value is not None:
            names += self.reader.read(aggregate.value).variables
        return [n for n in dict.fromkeys(names) if n in self.around and n != self.given.get(aggregate)]

    def aggregable(self, item: Expression, state: State) -> bool:
        """Whether an expression has aggregates still to be computed, all of whose outer variables are bound."""
        waiting = [a for a in item.aggregates if self.reader.name_of(a) not in state.places]
        return bool(waiting) and not any(self.missing(self.outer_of(a), state) for a in waiting)

    def aggregated(self, aggregate: Aggregate, state: State) -> State:
        """The rows with an aggregate's value; without those that have none: the extremes and the mean of nothing."""
        name = self.reader.name_of(aggregate)
        outer = self.outer_of(aggregate)
        of_rows = any(v not in _bound_by_atoms(aggregate.body, self.plans) for v in outer)
        groups = self.groups(aggregate, outer, state, of_rows=of_rows)
        width = len(state.plan.schema.columns)
        both = State(Join(state.plan, groups), state.places)
        at = aggregate.start
        pairs = [
            self.reader.truth(both, equals(width + i, self.reader.text(f'"{v}"', at))) for i, v in enumerate(outer)
        ]
        if of_rows:
            left, right, left_key, right_key = matched(state, groups, outer)
        else:
            left, right, left_key, right_key = keyed(state.plan, groups, pairs)
        moved_by = len(left.schema.columns)
        count, result = moved_by + len(outer), moved_by + len(outer) + 1
        if aggregate.function in ("count", "sum"):
            joined: Plan = LeftJoin(left, right, left_key, right_key) if outer else Join(left, right, (), ())
            nothing = f'coalesce("${count}", 0) = 0'
            text = f'case when {nothing} then 0 else "${result}" end'
            if aggregate.function == "count":
                text = f'coalesce("${result}", 0)'
        else:
            joined = Join(left, right, left_key, right_key)
            if not outer:
                some = self.reader.text(f'"${count}" > 0', at)
                joined = Filter(joined, self.reader.truth(State(joined, {}), some))
            text = f'"${result}"'
        found = self.reader.bind(State(joined, {}), self.reader.text(text, at))
        own, names = identity(joined.schema, range(width))
        return State(Project(joined, (*own, found), (*names, name)), {**state.places, name: width})

    def groups(self, aggregate: Aggregate, outer: Sequence[str], state: State, *, of_rows: bool) -> Plan:
        """One row a group of the outer variables: these, how many rows there are, and the value. `of_rows`: the body needs
        the variables' values, NULL too, as the rows have them.
        """
        own = [e for x in aggregate.body for e in expressions_of(x)]
        around = _outside([*own, *([] if aggregate.value is None else [aggregate.value])], self.reader)
        inner = Body(self.context, self.rule, self.plans, self.reader, around.union(outer))
        start = State(One(), {})
        if of_rows:
            kept = tuple(ColumnRef(state.places[v], state.plan.schema.columns[state.places[v]].type) for v in outer)
            start = State(Distinct(Project(state.plan, kept, tuple(outer))), {v: i for i, v in enumerate(outer)})
        rows = inner.bind(aggregate.body, start)
        if aggregate.value is not None:
            unbound = self.missing(self.reader.read(aggregate.value).variables, rows)
            if unbound:
                self.refuse_variables(dict.fromkeys(unbound, aggregate.value.start))
        read = self.called(aggregate)
        collected: list[KeptAggregate] = []
        binder = Binder(read.source, rows.scope, "SELECT", collected)
        counted = binder.bind(self.reader.text("count(*)", aggregate.start).node)
        value = binder.settled(read.node)
        keys = tuple(ColumnRef(rows.places[v], rows.plan.schema.columns[rows.places[v]].type) for v in outer)
        grouping = Grouping(binder, collected, [keys])
        plan = grouping.reduce(rows.plan, Subqueries(read.source, self.context.env, bind_query), SetCalls())
        exprs = [grouping.outside(e, read.node) for e in (*dict.fromkeys(keys), counted, value)]
        at = {k: i for i, k in enumerate(dict.fromkeys(keys))}
        row = [*(exprs[at[k]] for k in keys), *exprs[-2:]]
        return Project(plan, tuple(row), (*outer, "$count", "$value"))

    def called(self, aggregate: Aggregate) -> Read:
        """The aggregate as SQL's."""
        name = {"mean": "avg"}.get(aggregate.function, aggregate.function)
        if aggregate.value is None:
            return self.reader.text(f"{name}(*)", aggregate.start)
        for inner in aggregate.value.aggregates:
            raise self.context.error(inner.start, "an aggregate in an aggregate's value", "bind it to a variable first")
        return self.reader.called(name, aggregate.value, aggregate.start)


def _is_test(literal: Literal, plans: Plans) -> bool:
    """Whether a literal is a condition, or calls a function where no relation has the name."""
    return isinstance(literal, Condition) or literal.atom.name not in plans


def _test(literal: Literal) -> Expression:
    """What must be true."""
    match literal:
        case Condition():
            return literal.expression
        case Positive():
            return literal.call
        case Negative():
            return literal.call.negated()


def _bound_by_atoms(body: Sequence[Literal], plans: Plans) -> frozenset[str]:
    """The variables that stand alone in an atom of a body."""
    atoms = (x.atom for x in body if isinstance(x, Positive) and x.atom.name in plans)
    values = (a.value for atom in atoms for a in atom.arguments if a.value is not None)
    return frozenset(v.variable for v in values if v.variable is not None)


def _given_by_aggregates(body: Sequence[Literal], plans: Plans) -> dict[Aggregate, str]:
    """Of each aggregate the variable that stands alone on the other side of its equation, and that nothing else binds."""
    sides = [s for x in body if isinstance(x, Condition) for s in _sides(x.expression)]
    alone = Counter(one.variable for one, _ in sides)
    bound = _bound_by_atoms(body, plans)
    return {
        aggregate: one.variable
        for one, other in sides
        for aggregate in other.aggregates
        if one.variable is not None and one.variable not in bound and alone[one.variable] == 1
    }


def _sides(item: Expression) -> list[tuple[Expression, Expression]]:
    sides = item.equated()
    return [] if sides is None else [sides, sides[::-1]]


def _names(body: Sequence[Literal], reader: Reader) -> Iterator[str]:
    """The variables of a body, those of the aggregates in it too."""
    for literal in body:
        for expression in expressions_of(literal):
            yield from (v for v in reader.read(expression).variables if not v.startswith("$"))
            for aggregate in expression.aggregates:
                yield from _names(aggregate.body, reader)


def outside(rule: Rule, reader: Reader) -> frozenset[str]:
    """The variables of a rule that stand outside of its aggregates. Raises ViewError."""
    heads = [a.value for a in rule.head.arguments if a.value is not None]
    return _outside([*heads, *(e for literal in rule.body for e in expressions_of(literal))], reader)


def _outside(expressions: Sequence[Expression], reader: Reader) -> frozenset[str]:
    return frozenset(v for e in expressions for v in reader.read(e).variables if not v.startswith("$"))


def _alone_in_aggregates(rule: Rule) -> frozenset[str]:
    inner = (a for x in rule.body for e in expressions_of(x) for a in e.aggregates)
    return frozenset(v for a in inner for v in _alone(a.body))


__all__ = ["Body", "Plans", "outside", "variables_of"]
