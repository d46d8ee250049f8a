"""Subtypes and unions of types: which values may stand in which columns.

A subtype's values are values of the type that it is a part of, and not the other way round; a union has those of all its
members. Invariant: of a program without subtypes and unions nothing is said here. Called by `checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.views.datalog.context import SOUFFLE, Context
from headrace.views.datalog_text.syntax import Argument, Atom, Positive, Program, Rule


def check_subtypes(context: Context, rules: Sequence[Rule]) -> None:
    """Tell variables in columns of types that have nothing in common, and in heads of a type that theirs is no part of."""
    types = _Types(context.program)
    _check_unions(context, types)
    if not context.program.above:
        return
    for rule in rules:
        held: dict[str, dict[str, Argument]] = {}
        for literal in rule.body:
            if isinstance(literal, Positive):
                for name, kind, argument in types.variables(literal.atom):
                    held.setdefault(name, {}).setdefault(kind, argument)
        for name, kinds in held.items():
            if not types.have_common(kinds):
                at = max(argument.start for argument in kinds.values())
                reason = f"variable {name} is of the types {', '.join(kinds)}, which have no value in common"
                context.tell(at, reason, f"cast it in one place, {name}::type, or give the columns one type", rule.text)
        for name, kind, argument in types.variables(rule.head):
            known = held.get(name, {})
            if known and types.have_common(known) and not any(kind in types.above(k) for k in known):
                reason = f"column type {kind} of {rule.head.name} is not that of {name}, which is {', '.join(known)}"
                base = types.base(kind)
                hint = f"cast it, {name}::{SOUFFLE.get(base, base)}, or declare the column as {next(iter(known))}"
                context.tell(argument.start, reason, hint, rule.text)


def _check_unions(context: Context, types: _Types) -> None:
    for member, unions in context.program.above.items():
        for union, at in unions.items():
            bases = types.base(member), types.base(union)
            if bases[0] != bases[1]:
                reason = f"type {union} has values of {bases[1]} and, as {member}, of {bases[0]}"
                context.tell(at, reason, "make a relation for each kind")


class _Types:
    """What the program's types are."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._columns = {d.name: [(n, kind) for n, kind, _ in d.columns] for d in program.declared}
        self._known: dict[str, frozenset[str]] = {}

    def variables(self, atom: Atom) -> Iterator[tuple[str, str, Argument]]:
        """The variables that stand alone in an atom, with the declared types of their columns."""
        columns = self._columns.get(atom.name, [])
        names = [n for n, _ in columns]
        for place, argument in enumerate(atom.arguments):
            at = names.index(argument.name) if argument.name in names else place
            name = None if argument.value is None else argument.value.variable
            kind = columns[at][1] if at < len(columns) else None
            if name is not None and kind is not None:
                yield name, self.own(kind), argument

    def own(self, kind: str) -> str:
        """A type by the name that its synonyms share."""
        program, seen = self._program, {kind}
        while (
            kind in program.types
            and program.types[kind] not in program.above.get(kind, {})
            and not self._is_union(kind)
        ):
            kind = program.types[kind]
            if kind in seen:
                break
            seen.add(kind)
        return kind

    def _is_union(self, kind: str) -> bool:
        return kind in self._program.above.get(self._program.types.get(kind, ""), {})

    def base(self, kind: str) -> str:
        """The type that a value is kept as."""
        seen = {kind}
        while kind in self._program.types:
            kind = self._program.types[kind]
            if kind in seen:
                break
            seen.add(kind)
        return kind

    def above(self, kind: str) -> frozenset[str]:
        """The types that have all of its values, itself among them."""
        found = self._known.get(kind)
        if found is None:
            reached, todo = {kind}, [kind]
            while todo:
                one = todo.pop()
                names = [n for n in self._program.above if self.own(n) == one]
                for more in (self.own(u) for n in names for u in self._program.above[n]):
                    if more not in reached:
                        reached.add(more)
                        todo.append(more)
            found = self._known[kind] = frozenset(reached)
        return found

    def have_common(self, kinds: Sequence[str] | dict[str, Argument]) -> bool:
        """Whether a type is a part of all of these."""
        every = {self.own(k) for k in (*self._program.above, *kinds)}
        return any(all(kind in self.above(k) for kind in kinds) for k in every)


__all__ = ["check_subtypes"]
