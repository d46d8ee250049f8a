"""Atoms that give a recursive relation a constant: what they ask for is derived alone, by magic sets.

`reached(y) :- path(17, y).` asks for the paths from 17. Invariant: a relation is left as it is that the program also reads as a
whole, that stands as a view, or that is read once, in a column that all rules of its recursion keep, so that the constant can be
pushed into it. Called by `program`, a view at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from headrace.engine.schema import DataType, Kind
from headrace.views.datalog.checks import Relation
from headrace.views.datalog.groups import Strata
from headrace.views.datalog.magic import Asked, Rewritten, asked
from headrace.views.datalog.strata import readings
from headrace.views.datalog_text.syntax import Argument, Atom, Literal, Positive, Rule
from headrace.views.datalog_text.tokens import Token

_MOST = {Kind.SMALLINT: 1 << 15, Kind.INTEGER: 1 << 31, Kind.BIGINT: 1 << 63}


def answered(
    strata: Strata, wanted: str, types: Mapping[str, Sequence[DataType]], why_whole: Callable[[str], str]
) -> Rewritten | None:
    """The relations of a program in which what `wanted` asks for by constants is derived alone; None where it asks for nothing
    so. `types`, `why_whole`: as `magic.asked` takes them.
    """
    cone = strata.cone(wanted)
    every = readings([r for relation in strata.relations.values() for r in relation.rules])
    made = Rewritten()
    for group in strata.groups:
        name = group[0]
        if name not in cone or name not in strata.recursive or any(map(why_whole, group)):
            continue
        outer = [r for r in every if r.read in group and r.head not in group]
        bodies = {id(r.rule): r.rule for r in outer}
        if any(r.how or strata.relations[r.head].reads is not None or r.head in strata.recursive for r in outer):
            continue
        atoms = [a for rule in bodies.values() for a in _atoms(rule.body) if a.name in group]
        is_pushed = len(atoms) == 1 and _is_kept(strata, group, atoms[0], types[atoms[0].name])
        if not is_pushed and all(_given(a, types[a.name]) for a in atoms):
            for rule in (r for r in bodies.values() if r.head.name in cone):
                _replace(made, strata.relations, rule, group, types, why_whole)
    return made if made.copies else None


def _replace(
    made: Rewritten, relations: Mapping[str, Relation], rule: Rule, group: Sequence[str],
    types: Mapping[str, Sequence[DataType]], why_whole: Callable[[str], str],
) -> None:  # fmt: skip
    """Have a rule read answers to questions in the place of a group's relations."""
    head = rule.head.name
    rules = list((made.relations.get(head) or relations[head]).rules)
    place = next(i for i, r in enumerate(relations[head].rules) if r is rule)
    body: list[Literal] = []
    for literal in rules[place].body:
        if isinstance(literal, Positive) and literal.atom.name in group:
            atom, number = literal.atom, len(made.relations)
            given = _given(atom, types[atom.name])
            values, answer = f"constants {number}", f"answer {number}"
            fact = Rule(
                Atom(values, tuple(atom.arguments[i] for i in given), atom.start, atom.end), (), rule.text, rule.start
            )
            relation = relations[atom.name]
            columns = tuple(relation.columns[i] for i in given)
            kinds = tuple(types[atom.name][i] for i in given)
            made.relations[values] = Relation(values, columns, kinds, atom.start, rules=[fact])
            asked(Asked(atom.name, given, values, answer), relations, types, why_whole, made)
            literal = Positive(replace(atom, name=answer), literal.call)
        body.append(literal)
    rules[place] = replace(rule, body=tuple(body))
    made.relations[head] = replace(relations[head], rules=rules)


def _atoms(body: Sequence[Literal]) -> Iterator[Atom]:
    return (x.atom for x in body if isinstance(x, Positive))


def _given(atom: Atom, kinds: Sequence[DataType]) -> tuple[int, ...]:
    """The places of an atom's constants, each of which is a value of its column's type."""
    return tuple(i for i, (a, kind) in enumerate(zip(atom.arguments, kinds, strict=True)) if _is_constant(a, kind))


def _is_constant(argument: Argument, kind: DataType) -> bool:
    pieces = () if argument.value is None else argument.value.pieces
    token = pieces[0] if len(pieces) == 1 else None
    if not isinstance(token, Token):
        return False
    if token.kind == "string":
        return kind.kind is Kind.TEXT
    return token.kind == "number" and token.text.isdigit() and int(token.text) < _MOST.get(kind.kind, 0)


def _is_kept(strata: Strata, group: Set[str] | Sequence[str], atom: Atom, kinds: Sequence[DataType]) -> bool:
    """Whether every rule of a relation reads the relation itself with what its head has in the places of an atom's constants."""
    if len(group) > 1:
        return False
    for rule in strata.relations[atom.name].rules:
        for own in (a for a in _atoms(rule.body) if a.name == atom.name):
            for place in _given(atom, kinds):
                here, there = rule.head.arguments[place].value, own.arguments[place].value
                if here is None or there is None or here.variable is None or here.variable != there.variable:
                    return False
    return True


__all__ = ["answered"]
