"""Datalog's twin: a program evaluated naively, from its syntax tree, over sets of Python tuples, with None for NULL.

It knows nothing of the binder: variables are entries of dictionaries, every rule is asked until nothing is new, and expressions
are whole numbers, texts, `+ - * %` and comparisons.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence

from headrace.views.datalog_text.grammar import parse_program
from headrace.views.datalog_text.syntax import (
    Aggregate,
    Atom,
    Condition,
    Expression,
    Literal,
    Negative,
    Positive,
    Program,
    Rule,
    expressions_of,
)
from headrace.views.datalog_text.tokens import Token, string_value

Value = int | str | bool | None
Row = tuple[Value, ...]
Env = dict[object, Value]
Facts = Mapping[str, set[Row]]

_COMPARED = {"=": operator.eq, "!=": operator.ne, "<>": operator.ne, "<": operator.lt, "<=": operator.le,
             ">": operator.gt, ">=": operator.ge}  # fmt: skip


def evaluate(text: str, inputs: Facts, rounds: int = 10_000) -> dict[str, set[Row]]:
    """All relations of a program without mistakes, given the rows of its inputs. Relations that negate or aggregate themselves
    are made anew in each round of those of the round before, in so many rounds at most.
    """
    program = parse_program(text)
    assert not program.mistakes, program.mistakes
    facts: dict[str, set[Row]] = {r.head.name: set() for r in program.rules}
    facts.update({name: set(rows) for name, rows in inputs.items()})
    for group, counted in _groups(program):
        rules = [r for r in program.rules if r.head.name in group]
        for _ in range(rounds if counted else 1 << 40):
            made: dict[str, set[Row]] = {n: set() if counted else set(facts[n]) for n in group}
            for rule in rules:
                made[rule.head.name].update(_rows(rule, facts))
            if all(made[n] == facts[n] for n in group):
                break
            facts.update(made)
    for constraint in program.constraints:
        names = list(dict.fromkeys(v for x in constraint.bodies[0] for v in _alone(x)))
        found = [e for body in constraint.bodies for e in _envs(body, {}, facts, _seen(body, []))]
        facts[f"constraint {constraint.name}"] = {tuple(e[n] for n in names) for e in found}
    return facts


def _groups(program: Program) -> list[tuple[set[str], bool]]:
    """The relations that read each other, each group after those it reads, and whether it negates or aggregates its own."""
    reads: dict[str, set[str]] = {r.head.name: set() for r in program.rules}
    for rule in program.rules:
        reads[rule.head.name] |= {n for n, _ in _read(rule.body) if n in reads}
    reach = {n: set(r) for n, r in reads.items()}
    for _ in reads:
        for found in reach.values():
            found.update(*(reach[m] for m in list(found)))
    groups: list[set[str]] = []
    for name in reads:
        group = {name} | {m for m in reach[name] if name in reach[m]}
        if group not in groups:
            groups.append(group)
    groups.sort(key=lambda g: len(set().union(*(reach[n] for n in g)) | g))
    strict = {(r.head.name, n) for r in program.rules for n, how in _read(r.body) if how}
    return [(g, any(h in g and n in g for h, n in strict)) for g in groups]


def _read(body: Sequence[Literal], strict: bool = False) -> Iterator[tuple[str, bool]]:
    for literal in body:
        if not isinstance(literal, Condition):
            yield literal.atom.name, strict or isinstance(literal, Negative)
        for expression in expressions_of(literal):
            for aggregate in expression.aggregates:
                yield from _read(aggregate.body, True)


def _rows(rule: Rule, facts: Facts) -> Iterator[Row]:
    for env in _envs(rule.body, {}, facts, _outside(rule)):
        yield tuple(_value(a.value, env) for a in rule.head.arguments if a.value is not None)


def _envs(body: Sequence[Literal], start: Env, facts: Facts, outside: set[str]) -> list[Env]:
    """What the variables may be; one for each combination of rows. `outside`: the names that aggregates have from here."""
    envs: list[Env] = [start]
    for literal in body:
        if isinstance(literal, Positive):
            envs = [found for env in envs for row in facts[literal.atom.name] for found in _met(literal.atom, row, env)]
    rest: list[Literal] = [x for x in body if not isinstance(x, Positive)]
    for literal in body:
        if isinstance(literal, Positive):
            rest += [Condition(_equal(literal.atom, a.start, a.value)) for a in literal.atom.arguments
                     if a.value is not None and a.value.variable is None]  # fmt: skip
    return [found for env in envs for found in _kept(rest, env, facts, outside)]


def _equal(atom: Atom, at: int, value: Expression) -> Expression:
    """The condition that the column of an atom, which `_met` put under its place, equals an expression."""
    return Expression((Token("name", f"@{atom.start}.{at}", at, at), Token("mark", "=", at, at), *value.pieces))


def _met(atom: Atom, row: Row, env: Env) -> Iterator[Env]:
    found = dict(env)
    named = any(a.name for a in atom.arguments)
    assert named or len(row) == len(atom.arguments), atom
    for place, argument in enumerate(atom.arguments):
        if argument.value is None:
            continue
        value = row[place if argument.name is None else _column(argument.name)]
        name = argument.value.variable
        if name is None:
            found[f"@{atom.start}.{argument.start}"] = value
        elif name not in found:
            found[name] = value
        elif value is None or found[name] != value:
            return
    yield found


def _column(name: str) -> int:
    """Inputs name their columns c0, c1, …; nothing else is named in the programs that the twin is given."""
    return int(name.removeprefix("c"))


def _kept(rest: Sequence[Literal], env: Env, facts: Facts, outside: set[str]) -> Iterator[Env]:
    """The environment with what equations bind, if all conditions hold."""
    left = list(rest)
    env = dict(env)
    sides = [s for x in rest if isinstance(x, Condition) for s in _sides(x.expression)]
    alone = [one.variable for one, _ in sides]
    # What the equation of an aggregate alone binds is another variable inside of it.
    given = {a: one.variable for one, other in sides for a in other.aggregates
             if one.variable not in env and alone.count(one.variable) == 1}  # fmt: skip
    while left:
        for literal in left:
            done = _settled(literal, env, facts, outside, given)
            if done is None:
                continue
            if not done:
                return
            left.remove(literal)
            break
        else:
            raise AssertionError(f"nothing binds the variables of {left}")
    yield env


def _settled(
    literal: Literal, env: Env, facts: Facts, outside: set[str], given: Mapping[Aggregate, str | None]
) -> bool | None:
    """Whether a literal holds; None where its variables have no values yet."""
    for expression in expressions_of(literal):
        for aggregate in expression.aggregates:
            if aggregate not in env:
                names = (outside & _variables(aggregate)) - {given.get(aggregate)}
                if not names <= set(env):
                    return None
                inner: Env = {n: env[n] for n in names}
                own = [] if aggregate.value is None else [aggregate.value]
                within = names | _seen(aggregate.body, own)
                env[aggregate] = _aggregated(aggregate, _envs(aggregate.body, inner, facts, within))
            if env[aggregate] is _NOTHING:
                return False
    if isinstance(literal, Negative):
        places = enumerate(literal.atom.arguments)
        values = [(i if a.name is None else _column(a.name), a.value) for i, a in places if a.value is not None]
        if any(not _bound(v, env) for _, v in values):
            return None
        wanted = [(i, _value(v, env)) for i, v in values]
        return not any(all(w is not None and row[i] == w for i, w in wanted) for row in facts[literal.atom.name])
    assert isinstance(literal, Condition)
    if _bound(literal.expression, env):
        return _value(literal.expression, env) is True
    for one, other in _sides(literal.expression):
        if one.variable is not None and one.variable not in env and _bound(other, env):
            env[one.variable] = _value(other, env)
            return True
    return None


_NOTHING = object()
"""The extreme or the mean of no rows, which no variable may be."""


def _aggregated(aggregate: Aggregate, envs: Sequence[Env]) -> Value:
    if aggregate.value is None:
        return len(envs)
    values = [v for v in (_value(aggregate.value, env) for env in envs) if v is not None]
    if aggregate.function == "count":
        return len(values)
    if not envs:
        return 0 if aggregate.function == "sum" else _NOTHING  # type: ignore[return-value]
    if not values:
        return None
    made = {"sum": sum, "min": min, "max": max}[aggregate.function](values)  # type: ignore[operator]
    assert isinstance(made, int | str)
    return made


def _sides(expression: Expression) -> list[tuple[Expression, Expression]]:
    sides = expression.equated()
    return [] if sides is None else [sides, sides[::-1]]


def _alone(literal: Literal) -> Iterator[str]:
    sides = list(expressions_of(literal)) if isinstance(literal, Positive) else []
    if isinstance(literal, Condition):
        sides += literal.expression.equated() or ()
    yield from (s.variable for s in sides if s.variable is not None)


def _names(expression: Expression) -> set[str]:
    return {p.text for p in expression.pieces if isinstance(p, Token) and p.kind == "name" and p.text != "null"}


def _variables(aggregate: Aggregate) -> set[str]:
    found = set() if aggregate.value is None else _names(aggregate.value)
    expressions = [e for x in aggregate.body for e in expressions_of(x)]
    return found.union(*map(_names, expressions), *(_variables(a) for e in expressions for a in e.aggregates))


def _outside(rule: Rule) -> set[str]:
    return _seen(rule.body, [a.value for a in rule.head.arguments if a.value is not None])


def _seen(body: Sequence[Literal], more: Sequence[Expression]) -> set[str]:
    return set[str]().union(*(_names(e) for e in [*more, *(e for x in body for e in expressions_of(x))]))


def _bound(expression: Expression, env: Env) -> bool:
    return _names(expression) <= set(env)


def _value(expression: Expression | None, env: Env) -> Value:
    assert expression is not None
    found, rest = _compared(list(expression.pieces), env)
    assert not rest, rest
    return found


Pieces = list[Token | Aggregate]


def _next(pieces: Pieces) -> str:
    return pieces[0].text if pieces and isinstance(pieces[0], Token) and pieces[0].kind == "mark" else ""


def _compared(pieces: Pieces, env: Env) -> tuple[Value, Pieces]:
    left, pieces = _sum(pieces, env)
    sign = _next(pieces)
    if sign not in _COMPARED:
        return left, pieces
    right, pieces = _sum(pieces[1:], env)
    return (None if left is None or right is None else bool(_COMPARED[sign](left, right))), pieces


def _sum(pieces: Pieces, env: Env) -> tuple[Value, Pieces]:
    left, pieces = _product(pieces, env)
    while _next(pieces) in ("+", "-"):
        sign = _next(pieces)
        right, pieces = _product(pieces[1:], env)
        left = _counted(operator.add if sign == "+" else operator.sub, left, right)
    return left, pieces


def _product(pieces: Pieces, env: Env) -> tuple[Value, Pieces]:
    left, pieces = _single(pieces, env)
    while _next(pieces) in ("*", "%"):
        sign = _next(pieces)
        right, pieces = _single(pieces[1:], env)
        # Postgres's remainder has the sign of what is divided; here that is never below zero.
        left = _counted(operator.mul if sign == "*" else operator.mod, left, right)
    return left, pieces


def _counted(function: object, left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    assert isinstance(left, int)
    assert isinstance(right, int)
    assert callable(function)
    return function(left, right)  # type: ignore[no-any-return]


def _single(pieces: Pieces, env: Env) -> tuple[Value, Pieces]:
    first, rest = pieces[0], pieces[1:]
    if isinstance(first, Aggregate):
        return env[first], rest
    if first.text == "(":
        found, rest = _compared(rest, env)
        assert _next(rest) == ")"
        return found, rest[1:]
    if first.kind == "number":
        return int(first.text), rest
    if first.kind == "string":
        return string_value(first), rest
    return (None if first.text == "null" else env[first.text]), rest
