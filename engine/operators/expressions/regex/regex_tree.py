"""What a regular expression says, as a tree: branches of quantified atoms.

Always: a tree is never changed; it says nothing of how it is written or matched. Made by `regex_syntax`, matched by
`regex_match`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

ENDLESS = -1
LONGER, SHORTER = 1, 2
Test = Callable[[str], bool]


@dataclass(frozen=True)
class Any:
    """One character that passes a test."""

    test: Test


@dataclass(frozen=True)
class At:
    """A place: `where` is one of ^ $ A Z m M y Y, or ahead, !ahead, behind, !behind with an inner expression."""

    where: str
    inner: Group | None = None


@dataclass(frozen=True)
class Group:
    """Branches in parentheses, `capture` counted from 1, or 0; the whole expression is one too."""

    branches: tuple[tuple[Piece, ...], ...]
    capture: int = 0


@dataclass(frozen=True)
class Back:
    """What the parentheses `number` matched last, once more; `shape`: what that may be, as far as their pattern says."""

    number: int
    shape: Group
    folded: bool


@dataclass(frozen=True)
class Piece:
    """An atom `least` to `most` times; `prefers` LONGER or SHORTER, or 0 where the quantifier has no preference."""

    atom: Any | At | Group | Back
    least: int = 1
    most: int = 1
    prefers: int = 0


def unplaced(group: Group) -> Group:
    """A group without the places that it demands."""

    def of(piece: Piece) -> Piece:
        return replace(piece, atom=unplaced(piece.atom)) if isinstance(piece.atom, Group) else piece

    return Group(tuple(tuple(of(p) for p in branch if not isinstance(p.atom, At)) for branch in group.branches))
