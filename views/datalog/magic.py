"""Questions of a relation: the rules rewritten by magic sets, so that only what the given values reach is derived.

Of each relation that a question needs with some columns given there is a copy (`in_team bf`: its first column is given), and a
relation of the values that it is asked for (`wanted in_team bf`), which is fed by the rules that need the copy. Invariant: the
copy has at least the whole relation's rows for each value that is wanted, and no row that the whole has not; a value is wanted
only if it was given or stands in a row of a relation, so that a question ends where the whole does. Called by `program`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.engine.schema import DataType
from headrace.views.datalog.checks import Relation
from headrace.views.datalog_text.syntax import Argument, Atom, Condition, Expression, Literal, Positive, Rule
from headrace.views.datalog_text.tokens import Token

MOST_COPIES = 200
"""Relations that one question may need copies of; the whole is taken for one that needs more."""


@dataclass(frozen=True)
class Asked:
    """A question: the relation, the places of the columns that are given, and the relation that has their values. `answer`: the
    name of the relation with its rows."""

    name: str
    given: tuple[int, ...]
    values: str
    answer: str


@dataclass
class Rewritten:
    """The relations that answer a question beside those of the program. `whole`: of relations that are taken as a whole why, by
    name; `copies`: the relations that are derived as far as they are asked for."""

    relations: dict[str, Relation] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    copies: list[str] = field(default_factory=list)

    @property
    def notes(self) -> tuple[str, ...]:
        """What explain says of it."""
        found = [
            f"only what is asked of {name.rpartition(' ')[0]} is derived ({_spelled(name)})" for name in self.copies
        ]
        return (*found, *(f"the whole of {name} is taken: {why}" for name, why in self.whole.items()))


def asked(
    question: Asked,
    relations: Mapping[str, Relation],
    types: Mapping[str, Sequence[DataType]],
    why_whole: Callable[[str], str],
    made: Rewritten | None = None,
) -> Rewritten:
    """The relations that answer a question. `types`: of each relation's columns; `why_whole`: why a relation is to be taken as a
    whole, or nothing; `made`: what answers others, whose copies answer this one too.
    """
    rewriting = _Rewriting(relations, types, why_whole, Rewritten() if made is None else made)
    relation = relations[question.name]
    at = relation.at
    kinds = tuple(types[question.name])
    # A value of another type than its column's equals some, but is none of them.
    brought = types.get(question.values, [kinds[i] for i in question.given])
    same = [i for i, kind in zip(question.given, brought, strict=True) if kind == kinds[i]]
    pattern = "".join("b" if i in same else "f" for i in range(len(relation.columns)))
    variables = [_argument(f"column {i}", at) for i in range(len(relation.columns))]
    values = _positive(Atom(question.values, tuple(variables[i] for i in question.given), at, at))
    if not same and relation.reads is None:
        rewriting.made.whole[question.name] = "the values are of another type than its columns"
    name = rewriting.copy_of(question.name, pattern)
    if name is not None:
        head = Atom(wanted(name), tuple(variables[i] for i in same), at, at)
        rewriting.want(name, Rule(head, (values,), f".query {question.name}", at))
    read = _positive(Atom(name or question.name, tuple(variables), at, at))
    while rewriting.todo:
        rewriting.fill(*rewriting.todo.pop(0))
    head = Atom(question.answer, tuple(variables), at, at)
    rule = Rule(head, (read, values), f".query {question.name}", at)
    rewriting.made.relations[question.answer] = Relation(question.answer, relation.columns, kinds, at, rules=[rule])
    return rewriting.made


def wanted(name: str) -> str:
    """The relation of the values that a copy is asked for."""
    return f"wanted {name}"


@dataclass
class _Rewriting:
    """Makes copies of relations. `todo`: the copies that still have no rules."""

    relations: Mapping[str, Relation]
    types: Mapping[str, Sequence[DataType]]
    why_whole: Callable[[str], str]
    made: Rewritten = field(default_factory=Rewritten)
    todo: list[tuple[str, str, str]] = field(default_factory=list)

    def copy_of(self, name: str, pattern: str) -> str | None:
        """The copy of a relation for a pattern of given columns; None where the whole is taken."""
        relation = self.relations[name]
        copy = f"{name} {pattern}"
        if copy in self.made.relations:
            return copy
        why = "" if relation.reads is not None else self.why_whole(name)
        if not why and "b" not in pattern:
            why = "a rule asks for all of it"
        if not why and len(self.made.copies) >= MOST_COPIES:
            why = f"the question needs more than {MOST_COPIES} copies"
        if why or relation.reads is not None:
            if why:
                self.made.whole.setdefault(name, why)
            return None
        kinds = tuple(self.types[name])
        given = [i for i, p in enumerate(pattern) if p == "b"]
        columns = tuple(relation.columns[i] for i in given)
        self.made.copies.append(copy)
        self.made.relations[copy] = Relation(copy, relation.columns, kinds, relation.at)
        self.made.relations[wanted(copy)] = Relation(wanted(copy), columns, tuple(kinds[i] for i in given), relation.at)
        self.todo.append((name, pattern, copy))
        return copy

    def want(self, copy: str, rule: Rule) -> None:
        """One rule more that says for which values a copy is asked."""
        rules = self.made.relations[wanted(copy)].rules
        same = len(rule.body) == 1 and isinstance(rule.body[0], Positive) and _same(rule.body[0].atom, rule.head)
        if not same and all((r.head, r.body) != (rule.head, rule.body) for r in rules):
            rules.append(rule)

    def fill(self, name: str, pattern: str, copy: str) -> None:
        """The rules of a copy: those of the relation, each for the values that are wanted."""
        given = [i for i, p in enumerate(pattern) if p == "b"]
        for rule in self.relations[name].rules:
            begin, conditions = wanted_of(rule, wanted(copy), {i: self.types[name][i] for i in given}, self.types)
            body: list[Literal] = [begin]
            bound = _types_of(begin.atom, [self.types[name][i] for i in given])
            atoms = [x for x in rule.body if isinstance(x, Positive) and x.atom.name in self.relations]
            others = [x for x in rule.body if x not in atoms]
            while atoms:
                atom = max(atoms, key=lambda x: (self.share(x.atom, bound), -rule.body.index(x)))
                atoms.remove(atom)
                asked_with = self.pattern(atom.atom, bound)
                inner = self.copy_of(atom.atom.name, asked_with)
                read = atom
                if inner is not None:
                    arguments = tuple(a for a, p in zip(atom.atom.arguments, asked_with, strict=True) if p == "b")
                    head = Atom(wanted(inner), arguments, atom.atom.start, atom.atom.end)
                    self.want(inner, Rule(head, tuple(body), rule.text, rule.start))
                    read = _positive(replace(atom.atom, name=inner))
                body.append(read)
                bound = {**_types_of(atom.atom, self.types[atom.atom.name]), **bound}
            head = replace(rule.head, name=copy)
            self.made.relations[copy].rules.append(replace(rule, head=head, body=(*body, *conditions, *others)))

    def pattern(self, atom: Atom, bound: Mapping[str, DataType]) -> str:
        """Which columns of an atom are known before it is read: `bf` for the first of two."""
        pairs = zip(atom.arguments, self.types[atom.name], strict=True)
        return "".join("b" if _is_bound(a, kind, bound) else "f" for a, kind in pairs)

    def share(self, atom: Atom, bound: Mapping[str, DataType]) -> float:
        """How much of an atom is known."""
        return self.pattern(atom, bound).count("b") / max(len(atom.arguments), 1)


def wanted_of(
    rule: Rule, values: str, given: Mapping[int, DataType], types: Mapping[str, Sequence[DataType]]
) -> tuple[Positive, list[Literal]]:
    """The atom of the values that are wanted of a rule's head, and what must hold of those that the head computes, or that
    are of another type than the body gives them: that they are wanted as they are stored.
    """
    arguments: list[Argument] = []
    conditions: list[Literal] = []
    own: dict[str, DataType] = {}
    for literal in rule.body:
        if isinstance(literal, Positive) and literal.atom.name in types:
            own = {**_types_of(literal.atom, types[literal.atom.name]), **own}
    for place, kind in given.items():
        argument = rule.head.arguments[place]
        value = argument.value
        assert value is not None, "a head's arguments have values"
        if value.variable is not None and own.get(value.variable) == kind:
            arguments.append(argument)
            continue
        fresh = _argument(f"wanted {place}", argument.start)
        assert fresh.value is not None, "it was made so"
        arguments.append(fresh)
        at = argument.start
        sign, opening, closing = (Token("mark", text, at, at) for text in ("=", "cast(", f"as {kind})"))
        conditions.append(Condition(Expression((*fresh.value.pieces, sign, opening, *value.pieces, closing))))
    return _positive(Atom(values, tuple(arguments), rule.head.start, rule.head.end)), conditions


def _types_of(atom: Atom, kinds: Sequence[DataType]) -> dict[str, DataType]:
    """The types that an atom gives its variables."""
    pairs = zip(atom.arguments, kinds, strict=True)
    return {a.value.variable: k for a, k in reversed([*pairs]) if a.value is not None and a.value.variable is not None}


def _argument(name: str, at: int) -> Argument:
    """A variable that no rule can write."""
    return Argument(Expression((Token("name", name, at, at),)), at)


def _positive(atom: Atom) -> Positive:
    return Positive(atom, Expression((Token("name", atom.name, atom.start, atom.start),)))


def _is_bound(argument: Argument, kind: DataType, bound: Mapping[str, DataType]) -> bool:
    """Whether an argument is known before the atom is read: a variable that has a value of the column's type, or a literal."""
    value = argument.value
    if value is None:
        return False
    if value.variable is not None:
        return bound.get(value.variable) == kind
    first = value.pieces[0]
    literal = isinstance(first, Token) and (first.kind == "string" or first.text.isdigit())
    return literal and len(value.pieces) == 1


def _same(atom: Atom, other: Atom) -> bool:
    """Whether two atoms are of one relation and the same variables."""
    names = [[None if a.value is None else a.value.variable for a in x.arguments] for x in (atom, other)]
    return atom.name == other.name and names[0] == names[1] and None not in names[0]


def _spelled(copy: str) -> str:
    """Which columns of a copy are given: `+-`."""
    return copy.rpartition(" ")[2].replace("b", "+").replace("f", "-")


__all__ = ["Asked", "Rewritten", "asked", "wanted", "wanted_of"]
