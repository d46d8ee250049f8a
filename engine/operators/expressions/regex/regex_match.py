"""Matching of regular expressions as Postgres does it: leftmost, then longest or shortest, then the parts by preference.

Always: states tell where a match may end, and only where back references are ways to match tried one by one. Parts are
found from the outside in, as Postgres dissects a match. Made by `regexes`, once a pattern.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.engine.operators.expressions.regex.regex_states import Automaton, Text
from headrace.engine.operators.expressions.regex.regex_tree import ENDLESS, LONGER, SHORTER, Back, Group, Piece
from headrace.engine.operators.expressions.text.patterns import lower

_MIXED, _CAPTURES, _BACK = 4, 8, 16
_PREFERENCE = LONGER | SHORTER
Spans = list[tuple[int, int] | None]


@dataclass
class Part:
    """A node of the dissection: `kind` is = (nothing of interest inside), . (two parts), |, * (repeated, from none), or b
    (a back reference, `least` to `most` times)."""

    kind: str
    flags: int
    pieces: tuple[Piece, ...] | Group
    parts: list[Part] = field(default_factory=list)
    capture: int = 0
    least: int = 0
    most: int = ENDLESS
    back: Back | None = None
    _automaton: Automaton | None = None

    @property
    def captures(self) -> Iterator[int]:
        """The parentheses in it."""
        if self.capture:
            yield self.capture
        for part in self.parts:
            yield from part.captures

    @property
    def refers(self) -> bool:
        """Whether a back reference is in it, so that a match may not be one though its states say so."""
        return bool(self.flags & _BACK)

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
    return bool(flags & (_MIXED | _CAPTURES | _BACK))


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
        if isinstance(piece.atom, Back):
            preference = _combined(piece.prefers, _BACK)
            atom = Part("b", preference, (piece,), least=piece.least, most=piece.most, back=piece.atom)
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
    if atom.kind == "b" and isinstance(piece.atom, Back):
        return atom  # which counts for itself
    if piece.least == piece.most == 1 and not piece.prefers:
        return atom
    flags = _combined(piece.prefers, atom.flags)
    if piece.least == piece.most == 1 and piece.prefers == atom.flags & (_PREFERENCE | _MIXED):
        return atom
    if not atom.flags & (_CAPTURES | _BACK):
        return Part("=", flags, (piece,))
    if piece.least > 0 and not atom.refers:
        fewer = Piece(piece.atom, piece.least - 1, piece.most - (piece.most != ENDLESS), piece.prefers)
        before = Part("=", flags & _PREFERENCE, (fewer,))
        return Part(".", flags, (piece,), [before, atom])
    return Part("*", flags, (piece,), [atom], least=piece.least, most=piece.most)


class Matcher:
    """A pattern ready to match: `captures` of its parentheses."""

    def __init__(self, tree: Group, captures: int, lines: bool) -> None:
        self.captures = captures
        self._lines = lines
        self._part = _group_part(tree)
        self._whole = self._part if self._part.kind == "=" else Part("=", self._part.flags, tree)

    def found(self, text: Text) -> bool:
        """Whether there is a match anywhere."""
        if self._part.refers:
            return self.search(text) is not None
        return self._whole.automaton.first_end(text, 0, self._lines) is not None

    def search(self, text: Text, start: int = 0) -> Spans | None:
        """The spans of the first match from `start` on and of its parentheses; None for no match."""
        close = self._whole.automaton.first_end(text, start, self._lines)
        while close is not None:
            for begin in range(start, close + 1):
                for end in self._ends(self._whole, text, begin, len(text.value)):
                    spans: Spans = [(begin, end), *([None] * self.captures)]
                    if not _messy(self._part.flags) or self._dissect(self._part, text, begin, end, spans):
                        return spans
            start = close + 1
            if start >= len(text.value):
                return None
            close = self._whole.automaton.first_end(text, start, self._lines)
        return None

    def _dissect(self, part: Part, text: Text, begin: int, end: int, spans: Spans) -> bool:
        """Put the spans of the parentheses within `part`, which matches so far as its states say; whether it does."""
        if part.kind == ".":
            found = self._split(part, text, begin, end, spans)
        elif part.kind == "|":
            found = any(
                branch.automaton.spans(text, begin, end, self._lines) and self._dissect(branch, text, begin, end, spans)
                for branch in part.parts
            )
        elif part.kind == "b":
            found = _repeats(part, text, begin, end, spans)
        elif part.kind == "*" and part.refers:
            found = self._repeated(part, text, begin, end, spans)
        elif part.kind == "*":
            rounds = self._rounds(part, text, begin, end)
            found = all(self._dissect(part.parts[0], text, one, other, spans) for one, other in rounds[-1:])
        else:
            found = True
        if found and part.capture:
            spans[part.capture] = (begin, end)
        return found

    def _split(self, part: Part, text: Text, begin: int, end: int, spans: Spans) -> bool:
        left, right = part.parts
        for middle in self._ends(left, text, begin, end):
            if right.automaton.spans(text, middle, end, self._lines):
                if self._dissect(left, text, begin, middle, spans) and self._dissect(right, text, middle, end, spans):
                    return True
                _clear(part, spans)
        return False

    def _repeated(self, part: Part, text: Text, begin: int, end: int, spans: Spans) -> bool:
        """A repeated part with back references in it: the ways to divide a match are tried until one holds."""
        inner, may_be_none = part.parts[0], begin == end and part.least == 0
        if may_be_none and inner.shorter:
            return True
        least = max(part.least, 1)
        most = max(end - begin if part.most == ENDLESS else min(part.most, end - begin), least)
        places = [begin]
        choices = [self._ends(inner, text, begin, end)]
        while choices:
            at, done = places[-1], len(choices)
            needed = least - done
            # An empty round only where there would be too few without it.
            place = next((e for e in choices[-1] if e > at or (needed >= 0 and needed >= end - e)), None)
            if place is None:
                choices.pop()
                places.pop()
                continue
            if place < end:
                if done < most:
                    places.append(place)
                    choices.append(self._ends(inner, text, place, end))
                continue
            if done >= least and self._hold(inner, text, [*places, end], spans):
                return True
        _clear(part, spans)
        return may_be_none

    def _hold(self, inner: Part, text: Text, places: list[int], spans: Spans) -> bool:
        """Whether each round from place to place matches, one after the other."""
        for one, other in itertools.pairwise(places):
            _clear(inner, spans)
            if not self._dissect(inner, text, one, other, spans):
                return False
        return True

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


def _clear(part: Part, spans: Spans) -> None:
    """Forget what was found for the parentheses within `part`."""
    for capture in part.captures:
        spans[capture] = None


def _repeats(part: Part, text: Text, begin: int, end: int, spans: Spans) -> bool:
    """Whether what stands from `begin` to `end` is what the parentheses matched, as often as it may be."""
    assert part.back is not None
    span = spans[part.back.number]
    if span is None:
        return False
    once, whole = text.value[span[0] : span[1]], text.value[begin:end]
    if not once or not whole:
        return whole == "" and (once == "" or part.least == 0)
    times, rest = divmod(len(whole), len(once))
    if rest or times < part.least or (part.most != ENDLESS and times > part.most):
        return False
    text.spend(len(whole))
    return lower(whole) == lower(once) * times if part.back.folded else whole == once * times
