"""A delta in pieces: what a join finds may be far more than what is left of it once it is filtered, or added up.

Always: a piece is made when it is asked for, and once; whoever keeps pieces adds equal updates up as they come, so that
no more stands in memory at a time than what is left of them and about one piece. Called by joins of all kinds, by the nodes
that work on updates one by one, and by the dataflow's edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from headrace.engine.batch.consolidation import thinned
from headrace.engine.batch.updates import Updates
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.delta import QUIET, Delta, concat

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

    @property
    def waits(self) -> bool:
        """Whether nobody took the pieces so far."""
        return self._pieces is not None

    def take(self) -> Iterator[Delta]:
        """The pieces. Raises InvariantBroken the second time; the pieces may raise DiffOverflow."""
        pieces, self._pieces = self._pieces, None
        if pieces is None:
            raise InvariantBroken("the pieces of a delta were taken twice")
        return pieces


def pieces_of(delta: Delta) -> Iterator[Delta]:
    """The pieces of a delta in pieces, or the delta as the only one."""
    return delta.take() if isinstance(delta, Pieced) else iter((delta,))


def each(delta: Delta, of: Callable[[Delta], Delta]) -> Delta:
    """What `of`, which is linear and may itself give pieces, makes of a delta: in pieces of one in pieces."""
    if not isinstance(delta, Pieced):
        return of(delta)
    return Pieced(piece for some in delta.take() for piece in pieces_of(of(some)))


def joined(deltas: Sequence[Delta]) -> Delta:
    """All of them, one after the other: in pieces if any of them is."""
    some = [delta for delta in deltas if delta is not QUIET]
    if len(some) < 2:
        return some[0] if some else QUIET
    if any(isinstance(delta, Pieced) for delta in some):
        return Pieced(chain.from_iterable(map(pieces_of, some)))
    return Delta(concat([d.rows for d in some]), concat([d.errors for d in some]))


def added_up(pieces: Iterable[Delta]) -> Delta:
    """All pieces as one delta; equal updates are added up on the way wherever they are many."""
    total = Total()
    for piece in pieces:
        total.add(piece)
    return total.all()


def whole(delta: Delta) -> Delta:
    """The delta, all of it made. Raises DiffOverflow where its pieces do."""
    return added_up(delta.take()) if isinstance(delta, Pieced) else delta


class Total:
    """What comes piece by piece, equal updates added up wherever they are many. Single writer: who keeps it."""

    def __init__(self) -> None:
        self._rows, self._errors = _Sum(), _Sum()

    def add(self, piece: Delta) -> None:
        """One piece more."""
        self._rows.add(piece.rows)
        self._errors.add(piece.errors)

    def all(self) -> Delta:
        """All that came."""
        found = Delta(self._rows.all(), self._errors.all())
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
