"""The relations of a program in groups that read each other, and what a view of one of them rests on. Made by `program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.views.datalog.checks import Relation
from headrace.views.datalog.relations import Counted
from headrace.views.datalog.strata import readings, strata


@dataclass(frozen=True)
class Strata:
    """Relations in groups that read each other, each group after those it reads."""

    relations: Mapping[str, Relation]
    groups: Sequence[tuple[str, ...]]
    recursive: frozenset[str]
    read: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, relations: Mapping[str, Relation]) -> Strata:
        """The groups of the relations, by their rules."""
        every = readings([r for relation in relations.values() for r in relation.rules])
        read = {
            n: tuple(dict.fromkeys(r.read for r in every if r.head == n and r.read in relations)) for n in relations
        }
        groups = strata(list(relations), read)
        return cls(relations, groups, frozenset(n for g in groups for n in g if len(g) > 1 or n in read[n]), read)

    def cone(self, wanted: str) -> set[str]:
        """The relation and all on which it rests."""
        found, todo = {wanted}, [wanted]
        while todo:
            for name in self.read.get(todo.pop(), ()):
                if name not in found:
                    found.add(name)
                    todo.append(name)
        return found

    def notes(self, wanted: str, counted: Mapping[str, Counted], siblings: Mapping[str, str]) -> tuple[str, ...]:
        """What explain says of the groups on which a relation rests: their order, and how each recursive one is evaluated."""
        cone = self.cone(wanted)
        found: list[str] = []
        for group in self.groups:
            if not cone & set(group) or self.relations[group[0]].reads is not None:
                continue
            stands = next((siblings[n] for n in group if n in siblings), None)
            if wanted not in group and stands is not None:
                how = f"read as {'the view ' + stands if len(group) == 1 else 'views'}"
            elif group[0] not in self.recursive:
                how = "not recursive"
            elif group[0] in counted:
                how = f"recursive, in rounds from nothing, for {counted[group[0]].why}"
            else:
                how = "recursive, a fixpoint of sets"
            found.append(f"stratum {len(found) + 1}: {', '.join(group)}: {how}")
        return tuple(found)
