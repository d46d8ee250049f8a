"""A delta in pieces: what a join finds may be far more than what is left of it once it is filtered, or added up.

Always: a piece is made when it is asked for, and once; whoever keeps pieces adds equal updates up as they come, so that
no more stands in memory at a time than what is left of them and about one piece. Called by joins, by the nodes that
work on updates one by one, and by the dataflow's edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.batch.consolidation import thinned
from engine.batch.updates import Updates
from engine.errors import InvariantBroken
from engine.operators.delta import QUIET, Delta, concat

PIECE = 1 << 18
"""So many rows a piece has at the most."""


class Pieced(Delta):
    """A delta that is still to be made. Single reader: whoever takes the pieces, within the step."""

    _pieces: Iterator[Delta] | None

    def __new__(cls, pieces: Iterator[Delta]) -> Pieced:  # noqa: D102
        made = super().__new__(cls, None, None)
        made._pieces = pieces
        return made

    @property
    def rows(self) -> Updates | None:
        """Whoever wants all of them makes the delta first. Raises InvariantBroken."""
        raise InvariantBroken("the rows of a delta were asked for that is still in pieces")

    @property
    def errors(self) -> Updates | None:
        """As for `rows`. Raises InvariantBroken."""
        raise InvariantBroken("the errors of a delta were asked for that is still in pieces")

    def take(self) -> Iterator[Delta]:
        """The pieces. Raises InvariantBroken the second time; the pieces may raise DiffOverflow."""
        pieces, self._pieces = self._pieces, None
        if pieces is None:
            raise InvariantBroken("the pieces of a delta were taken twice")
        return pieces


def pieces_of(delta: Delta) -> Iterator[Delta]:
    """The pieces of a delta in pieces, or the delta as the only one."""
    return delta.take() if isinstance(delta, Pieced) else iter((delta,))


def added_up(pieces: Iterable[Delta]) -> Delta:
    """All pieces as one delta; equal updates are added up on the way wherever they are many."""
    rows, errors = _Sum(), _Sum()
    for piece in pieces:
        rows.add(piece.rows)
        errors.add(piece.errors)
    found = Delta(rows.all(), errors.all())
    return QUIET if found == QUIET else found


class _Sum:
    """Updates that come bit by bit. `_more`: so many may come until they are added up again."""

    def __init__(self) -> None:
        self._parts: list[Updates] = []
        self._more = PIECE

    def add(self, updates: Updates | None) -> None:
        if updates is None or not len(updates):
            return
        self._parts.append(updates)
        self._more -= len(updates)
        if self._more < 0:
            left = self.all()
            assert left is not None
            left = thinned(left)
            self._parts = [left]
            self._more = max(PIECE, len(left))

    def all(self) -> Updates | None:
        return concat(self._parts)
