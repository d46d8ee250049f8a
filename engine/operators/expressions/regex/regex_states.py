"""The states of a regular expression, walked along a text: where a match of it may end.

Always: a set of states walks the text, so that the cost is the text's length times the pattern's at each start, and never
grows with the ways to match; a budget of steps ends what is too costly. Called by `regex_match`.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.regex.regex_syntax import UNMATCHED, is_word
from headrace.engine.operators.expressions.regex.regex_tree import ENDLESS, Any, At, Back, Group, Piece, Test

STEPS = 5_000_000
"""Characters looked at for one value before its row fails."""
_MOST_STATES, _MOST_HELD = 20_000, 2_000


@dataclass
class Text:
    """A text that is being matched, and the steps that are left for it."""

    value: str
    left: int = STEPS

    def spend(self, steps: int) -> None:
        """Counts steps. Raises RowError when there are no more."""
        self.left -= steps
        if self.left < 0:
            raise RowError(f"{UNMATCHED}: it takes more than {STEPS} steps on one value")


class Automaton:
    """The states of a sequence of pieces: 0 is the first, 1 the last. Its cache grows by whoever walks."""

    def __init__(self, pieces: tuple[Piece, ...] | Group) -> None:
        self.free: list[list[tuple[At | None, int]]] = [[], []]
        self.arcs: list[list[tuple[Test, int]]] = [[], []]
        self.inner: dict[int, Automaton] = {}
        self.placed = False
        self._held: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        if isinstance(pieces, Group):
            self._group(pieces, 0, 1)
        else:
            self._sequence(pieces, 0, 1)

    def _state(self) -> int:
        if len(self.free) > _MOST_STATES:
            raise RowError("invalid regular expression: regular expression is too complex")
        self.free.append([])
        self.arcs.append([])
        return len(self.free) - 1

    def _sequence(self, pieces: tuple[Piece, ...], start: int, end: int) -> None:
        for piece in pieces:
            after = self._state()
            self._piece(piece, start, after)
            start = after
        self.free[start].append((None, end))

    def _group(self, group: Group, start: int, end: int) -> None:
        for branch in group.branches:
            self._sequence(branch, start, end)

    def _piece(self, piece: Piece, start: int, end: int) -> None:
        for _ in range(piece.least):
            after = self._state()
            self._once(piece.atom, start, after)
            start = after
        if piece.most == ENDLESS:
            around = self._state()
            self.free[start].append((None, around))
            self._once(piece.atom, around, around)
            start = around
        else:
            for _ in range(piece.most - piece.least):
                after = self._state()
                self._once(piece.atom, start, after)
                self.free[start].append((None, end))
                start = after
        self.free[start].append((None, end))

    def _once(self, atom: Any | At | Group | Back, start: int, end: int) -> None:
        if isinstance(atom, Back):
            atom = atom.shape
        if isinstance(atom, Any):
            self.arcs[start].append((atom.test, end))
        elif isinstance(atom, Group):
            inside, out = self._state(), self._state()
            self.free[start].append((None, inside))
            self._group(atom, inside, out)
            self.free[out].append((None, end))
        else:
            self.placed = True
            if atom.inner is not None:
                self.inner[id(atom)] = Automaton(atom.inner)
            self.free[start].append((atom, end))

    def _closed(self, states: set[int], text: Text, at: int, lines: bool) -> frozenset[int]:
        todo = list(states)
        while todo:
            for place, target in self.free[todo.pop()]:
                if target not in states and (place is None or self._holds(place, text, at, lines)):
                    states.add(target)
                    todo.append(target)
        return frozenset(states)

    def _holds(self, place: At, text: Text, at: int, lines: bool) -> bool:
        value, where = text.value, place.where
        if where in "^A":
            return at == 0 or (where == "^" and lines and value[at - 1] == "\n")
        if where in "$Z":
            return at == len(value) or (where == "$" and lines and value[at] == "\n")
        if place.inner is not None:
            inner = self.inner[id(place)]
            if where.endswith("ahead"):
                found = inner.end_from(text, at, len(value), lines, shortest=True) is not None
            else:
                found = any(inner.spans(text, start, at, lines) for start in range(at + 1))
            return found != where.startswith("!")
        before, after = at > 0 and is_word(value[at - 1]), at < len(value) and is_word(value[at])
        if where in "mM":
            return after and not before if where == "m" else before and not after
        return (before != after) == (where == "y")

    def _next(self, states: frozenset[int], text: Text, at: int, lines: bool, *, anew: bool = False) -> frozenset[int]:
        """The states after the character at `at`; `anew`: the first state is added to them."""
        char = text.value[at]
        key = (states, char)
        if not self.placed and not anew and (held := self._held.get(key)) is not None:
            return held
        found = {target for s in states for test, target in self.arcs[s] if test(char)}
        if anew:
            found.add(0)
        text.spend(len(states))
        closed = self._closed(found, text, at + 1, lines)
        if not self.placed and not anew:
            if len(self._held) > _MOST_HELD:
                self._held.clear()
            self._held[key] = closed
        return closed

    def end_from(self, text: Text, start: int, stop: int, lines: bool, *, shortest: bool, least: int = 0) -> int | None:
        """Where the longest match from `start` ends, or the shortest that ends at `least` or later; None for none."""
        states = self._closed({0}, text, start, lines)
        found = None
        at = start
        while True:
            if 1 in states and at >= least:
                found = at
                if shortest:
                    return found
            if at == stop or not states:
                return found
            text.spend(1)
            states = self._next(states, text, at, lines)
            at += 1

    def spans(self, text: Text, start: int, end: int, lines: bool) -> bool:
        """Whether it matches exactly from `start` to `end`."""
        return self.end_from(text, start, end, lines, shortest=False, least=end) == end

    def first_end(self, text: Text, start: int, lines: bool) -> int | None:
        """The earliest end of any match that begins at `start` or later."""
        states = self._closed({0}, text, start, lines)
        for at in range(start, len(text.value) + 1):
            if 1 in states:
                return at
            if at < len(text.value):
                states = self._next(states, text, at, lines, anew=True)
        return None
