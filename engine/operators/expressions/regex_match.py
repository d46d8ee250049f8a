"""Matching of regular expressions as Postgres does it: leftmost, then longest or shortest, then the parts by preference.

Always: a set of states walks the text, so that the cost is the text's length times the pattern's at each start, and never
grows with the ways to match; a budget of steps ends what is too costly. Parts are found from the outside in, as Postgres
dissects a match. Made by `regexes`, once a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.regex_syntax import (
    ENDLESS,
    LONGER,
    SHORTER,
    UNMATCHED,
    Any,
    At,
    Group,
    Piece,
    Test,
    is_word,
)

STEPS = 5_000_000
"""Characters looked at for one value before its row fails."""
_MIXED, _CAPTURES = 4, 8
_PREFERENCE = LONGER | SHORTER
_MOST_STATES, _MOST_HELD = 20_000, 2_000
Spans = list[tuple[int, int] | None]


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

    def _once(self, atom: Any | At | Group, start: int, end: int) -> None:
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


@dataclass
class Part:
    """A node of the dissection: `kind` is = (nothing of interest inside), . (two parts), | or * (repeated, from none)."""

    kind: str
    flags: int
    pieces: tuple[Piece, ...] | Group
    parts: list[Part] = field(default_factory=list)
    capture: int = 0
    most: int = ENDLESS
    _automaton: Automaton | None = None

    @property
    def automaton(self) -> Automaton:
        """What the part matches as a whole."""
        if self._automaton is None:
            self._automaton = Automaton(self.pieces)
        return self._automaton

    @property
    def shorter(self) -> bool:
        """Whether the shortest match is wanted."""
        return bool(self.flags & SHORTER)


def _up(flags: int) -> int:
    mixed = _MIXED if flags & _PREFERENCE == _PREFERENCE else 0
    return (flags & ~_PREFERENCE) | mixed


def _combined(one: int, other: int) -> int:
    return _up(one | other) | (one & _PREFERENCE or other & _PREFERENCE)


def _messy(flags: int) -> bool:
    return bool(flags & (_MIXED | _CAPTURES))


def _group_part(group: Group) -> Part:
    if len(group.branches) == 1:
        found = _branch_part(group.branches[0])
        found = Part("=", found.flags, group) if not _messy(found.flags) else found
    else:
        parts = [_branch_part(b) for b in group.branches]
        flags = LONGER
        for part in parts:
            flags |= _up(flags | part.flags)
        found = Part("|", flags, group, parts) if _messy(flags) else Part("=", flags, group)
    if group.capture:
        if found.capture:
            found = Part("|", found.flags, group, [found])
        found.capture = group.capture
        found.flags |= _CAPTURES
    return found


def _branch_part(pieces: tuple[Piece, ...]) -> Part:
    flags = 0
    for i, piece in enumerate(pieces):
        atom = _group_part(piece.atom) if isinstance(piece.atom, Group) else None
        if piece.most == 0:
            continue
        with_atom = flags | piece.prefers | (atom.flags if atom else 0)
        if (atom is None or not atom.capture) and not _messy(_up(with_atom)):
            flags = with_atom
            continue
        found = _quantified_part(piece, atom or Part("=", 0, (Piece(piece.atom),)))
        if i + 1 < len(pieces):
            rest = _branch_part(pieces[i + 1 :])
            found = Part(".", _combined(found.flags, rest.flags), pieces[i:], [found, rest])
        if i:
            found = Part(".", _combined(flags, found.flags), pieces, [Part("=", flags, pieces[:i]), found])
        return found
    return Part("=", flags, pieces)


def _quantified_part(piece: Piece, atom: Part) -> Part:
    if piece.least == piece.most == 1 and not piece.prefers:
        return atom
    flags = _combined(piece.prefers, atom.flags)
    if piece.least == piece.most == 1 and piece.prefers == atom.flags & (_PREFERENCE | _MIXED):
        return atom
    if not atom.flags & _CAPTURES:
        return Part("=", flags, (piece,))
    if piece.least > 0:
        fewer = Piece(piece.atom, piece.least - 1, piece.most - (piece.most != ENDLESS), piece.prefers)
        before = Part("=", flags & _PREFERENCE, (fewer,))
        return Part(".", flags, (piece,), [before, atom])
    return Part("*", flags, (piece,), [atom], most=piece.most)


class Matcher:
    """A pattern ready to match: `captures` of its parentheses."""

    def __init__(self, tree: Group, captures: int, lines: bool) -> None:
        self.captures = captures
        self._lines = lines
        self._part = _group_part(tree)
        self._whole = self._part if self._part.kind == "=" else Part("=", self._part.flags, tree)

    def found(self, text: Text) -> bool:
        """Whether there is a match anywhere."""
        return self._whole.automaton.first_end(text, 0, self._lines) is not None

    def search(self, text: Text, start: int = 0) -> Spans | None:
        """The spans of the first match from `start` on and of its parentheses; None for no match."""
        automaton = self._whole.automaton
        close = automaton.first_end(text, start, self._lines)
        if close is None:
            return None
        for begin in range(start, close + 1):
            end = automaton.end_from(text, begin, len(text.value), self._lines, shortest=self._part.shorter)
            if end is not None:
                spans: Spans = [(begin, end), *([None] * self.captures)]
                if self.captures:
                    self._dissect(self._part, text, begin, end, spans)
                return spans
        return None

    def _dissect(self, part: Part, text: Text, begin: int, end: int, spans: Spans) -> None:
        if part.kind == ".":
            self._split(part, text, begin, end, spans)
        elif part.kind == "|":
            for branch in part.parts:
                if branch.automaton.spans(text, begin, end, self._lines):
                    self._dissect(branch, text, begin, end, spans)
                    break
        elif part.kind == "*":
            for one, other in self._rounds(part, text, begin, end)[-1:]:
                self._dissect(part.parts[0], text, one, other, spans)
        if part.capture:
            spans[part.capture] = (begin, end)

    def _split(self, part: Part, text: Text, begin: int, end: int, spans: Spans) -> None:
        left, right = part.parts
        for middle in self._ends(left, text, begin, end):
            if right.automaton.spans(text, middle, end, self._lines):
                self._dissect(left, text, begin, middle, spans)
                self._dissect(right, text, middle, end, spans)
                return

    def _ends(self, part: Part, text: Text, begin: int, end: int) -> Iterator[int]:
        """The ends of the part's matches from `begin`, the preferred ones first."""
        shortest = part.shorter
        at = part.automaton.end_from(text, begin, end, self._lines, shortest=shortest)
        while at is not None:
            yield at
            if at == (end if shortest else begin):
                return
            stop, least = (end, at + 1) if shortest else (at - 1, 0)
            at = part.automaton.end_from(text, begin, stop, self._lines, shortest=shortest, least=least)

    def _rounds(self, part: Part, text: Text, begin: int, end: int) -> list[tuple[int, int]]:
        """How a repeated part divides a match: each round as long, or as short, as it may be."""
        if begin == end:
            once = not part.parts[0].shorter and part.parts[0].automaton.spans(text, begin, end, self._lines)
            return [(begin, end)] if once else []
        most = end - begin if part.most == ENDLESS else min(part.most, end - begin)
        hopeless: set[tuple[int, int]] = set()
        found: list[tuple[int, int]] = []
        choices = [self._ends(part.parts[0], text, begin, end)]
        while choices:
            start = found[-1][1] if found else begin
            at = next((e for e in choices[-1] if e > start and (e, len(found)) not in hopeless), None)
            if at is None:
                choices.pop()
                if found:
                    hopeless.add((found.pop()[1], len(found)))
                continue
            if at == end:
                return [*found, (start, at)]
            if len(found) + 1 < most:
                found.append((start, at))
                choices.append(self._ends(part.parts[0], text, at, end))
        return []
