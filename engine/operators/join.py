"""The inner equi-join of updates with a trace: each pair once, at the later of its two times.

Always: NULL keys meet nothing; a residual that fails, or a multiplicity that overflows, is an error update; the rows
hold columns of the left before those of the right, whichever side the updates are of. Called by the dataflow's join nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.batch.consolidation import consolidate
from engine.batch.exported import Exported
from engine.batch.keys import Keys
from engine.batch.payload import Assembly, take_rows
from engine.batch.updates import Int64s, Updates
from engine.kernels.join import pair
from engine.kernels.times import EPOCHS, ROUNDS
from engine.operators.aggregates import message_where
from engine.operators.delta import QUIET, Delta, concat, take
from engine.operators.expressions.ir import Expr
from engine.operators.linear import filter_rows, split
from engine.operators.pieces import PIECE, Pieced, pieces_of
from engine.operators.rounds import Moment, stamps_of
from engine.operators.sifted import Index
from engine.trace.lookup import LATEST, Matches, TooMany

OVERFLOW = "a row's multiplicity does not fit 64 bits"


Wait = Callable[[int, Delta], None]
"""Takes what was found for a later round."""


class Span(NamedTuple):
    """Which part of a trace is asked: times are advanced to `since`; epochs ≥ `until` are left out."""

    since: int
    until: int | None


class Probes(NamedTuple):
    """Updates to look up: the payload their rows lie in, and each one's position there, key, time and diff."""

    struct: Exported
    positions: Int64s
    keys: Keys
    times: Int64s
    diffs: Int64s

    def halves(self) -> list[Probes]:
        """The earlier and the later half of them."""
        middle = len(self.keys) // 2
        return [self._part(slice(0, middle)), self._part(slice(middle, None))]

    def _part(self, part: slice) -> Probes:
        keys = Keys(self.keys.hash[part], self.keys.check[part])
        return Probes(self.struct, self.positions[part], keys, self.times[part], self.diffs[part])


class Joined(NamedTuple):
    """What a join makes of pairs: how their rows are put together (lane 0: the probes) and the residual over such a row."""

    assembly: Assembly
    residual: Expr | None

    @classmethod
    def of(
        cls, schema: pa.Schema, held: tuple[Sequence[int], Sequence[int]], residual: Expr | None = None, probes: int = 0
    ) -> Joined:
        """For probes of the left side (0) or of the right (1): rows of `schema` hold columns `held` of the two."""
        sides = [int(side != probes) for side in (0, 1) for _ in held[side]]
        return cls(Assembly.of(schema, [*held[0], *held[1]], sides), residual)


Made = Callable[[Probes, Matches], Delta]
"""What is made of probes and what they met."""


def without_nulls(rows: Exported, key: Sequence[int]) -> Int64s | None:
    """Positions of the rows whose key has no NULL, or None if that is all of them."""
    mask = None
    for k in key:
        if rows.nulls(k):
            valid = rows.rows.column(k).is_valid().to_numpy(zero_copy_only=False)
            mask = valid if mask is None else mask & valid
    return None if mask is None else np.flatnonzero(mask)


def join_trace(probes: Probes, index: Index, span: Span, joined: Joined) -> Delta:
    """`probes` joined with the updates of `index` in `span`, in pieces where these are many. Raises DiffOverflow."""
    return _met(probes, index, span, lambda some, found: _joined(some, found, joined))


def _met(probes: Probes, index: Index, span: tuple[int, int | None], made: Made) -> Delta:
    """What `made` makes of the probes and their matches in `span`, in pieces where these are many. Raises DiffOverflow."""
    count = len(probes.keys)
    if not count:
        return QUIET
    try:
        # Fewer probes than one do not meet less.
        found = index.gather(probes.keys, *span, PIECE if count > 1 else LATEST)
    except TooMany:
        return Pieced(piece for some in probes.halves() for piece in pieces_of(_met(some, index, span, made)))
    return made(probes, found) if len(found.probe) <= PIECE else Pieced(_cut(probes, found, made))


def _cut(probes: Probes, matches: Matches, made: Made) -> Iterator[Delta]:
    """What is made of probes and their matches, so many of these at a time as a piece may have."""
    for start in range(0, len(matches), PIECE):
        cut = np.arange(start, min(start + PIECE, len(matches)))
        yield made(probes, matches if len(cut) == len(matches) else matches.take(cut))


def join_round(probes: Probes, index: Index, moment: Moment, joined: Joined, wait: Wait, *, old: bool) -> Delta:
    """`probes`, of the moment's round, joined with `index`: the pairs of this round; `wait` gets those of later ones.

    In pieces where these are many, and `wait` is called as they are made. `old`: without the trace's updates of this
    moment. Raises DiffOverflow.
    """

    def made(some: Probes, matches: Matches) -> Delta:
        if old:
            new = moment.is_new(matches.times)
            if new.any():
                matches = matches.take(np.flatnonzero(~new))
        here, later = moment.parted(matches)
        for at, found in later:
            wait(at, _joined(some, found, joined))
        return _joined(some, here, joined)

    return _met(probes, index, (moment.lower - 1, None), made)


def look_up_round(probes: Probes, index: Index, moment: Moment, joined: Joined, *, strictly: bool) -> Delta:
    """`probes`, rows with stamps that set out in the moment's round, joined with the updates of `index` that came before.

    That is in an earlier step, or an earlier round of this one, or in this round at an epoch before that of the stamp, or
    (unless `strictly`) at the same. A pair stands at the later epoch, and its stamp has the round that is ≥ both.
    In pieces where these are many. Raises DiffOverflow.
    """

    def made(some: Probes, matches: Matches) -> Delta:
        return _stamped_pairs(some, matches, moment, joined, strictly=strictly)

    return _met(probes, index, (moment.since, None), made)


def _stamped_pairs(probes: Probes, matches: Matches, moment: Moment, joined: Joined, *, strictly: bool) -> Delta:
    """`look_up_round`, of what was met."""
    stamps = stamps_of(probes.struct)[probes.positions][matches.probe]
    late = moment.is_new(matches.times)
    if late.any():
        epochs, when = matches.times & EPOCHS, stamps & EPOCHS
        late &= epochs >= when if strictly else epochs > when
        chosen = np.flatnonzero(~late)
        matches, stamps = matches.take(chosen), stamps[chosen]
    reached = moment.reached(matches.times, stamps)
    matches = replace(matches, times=matches.times & EPOCHS)
    further = reached != stamps & ROUNDS
    if not further.any():
        return _left(_joined(probes, matches, joined), matches)
    here, there = matches.take(np.flatnonzero(~further)), matches.take(np.flatnonzero(further))
    moved = _restamped(probes, there.probe, (stamps & EPOCHS | reached)[further])
    there = replace(there, probe=np.arange(len(there)))
    parts = _joined(probes, here, joined), _joined(moved, there, joined)
    found = Delta(concat([d.rows for d in parts]), concat([d.errors for d in parts]))
    return _left(found, matches)


def _restamped(probes: Probes, chosen: Int64s, stamps: Int64s) -> Probes:
    """The probes `chosen`, with other stamps; nobody looks them up again."""
    rows = take_rows(probes.struct.rows, probes.positions[chosen])
    rows = pa.RecordBatch.from_arrays([pa.array(stamps), *rows.columns[1:]], schema=rows.schema)
    places = np.arange(len(chosen))
    return Probes(Exported(rows), places, probes.keys.take(chosen), probes.times[chosen], probes.diffs[chosen])


def look_up_earlier(probes: Probes, index: Index, since: int, joined: Joined, *, strictly: bool) -> Delta:
    """`probes` joined with the updates of `index` that came before them, or (unless `strictly`) at the same epoch.

    Times before `since` are advanced to it. A row that came and went before its probe is no pair of that: what a chain
    of look-ups carries stays as small as its rows are. In pieces where these are many. Raises DiffOverflow.
    """

    def made(some: Probes, matches: Matches) -> Delta:
        when = some.times[matches.probe]
        late = matches.times >= when if strictly else matches.times > when
        if late.any():
            matches = matches.take(np.flatnonzero(~late))
        return _left(_joined(some, matches, joined), matches)

    return _met(probes, index, (since, None), made)


def without_partner(rows: Updates, key: tuple[Keys, Int64s | None], index: Index, as_of: int) -> Updates | None:
    """The rows of a content at `as_of` whose key is not in `index` then, nothing put together. Raises DiffOverflow.

    `key`: the identities of all rows, and the positions of those without NULL, which alone meet any (None: all).
    """
    keys, valid = key
    alone = np.ones(len(rows), np.bool_)
    for start in range(0, len(rows) if valid is None else len(valid), PIECE):
        asked = np.arange(start, min(start + PIECE, len(rows))) if valid is None else valid[start : start + PIECE]
        alone[asked[index.gather(keys.take(asked), as_of, as_of + 1).probe]] = False
    return rows if alone.all() else take(rows, np.flatnonzero(alone)) if alone.any() else None


def _left(found: Delta, matches: Matches) -> Delta:
    """What was found of matches, without what cancels."""
    if found.rows is None or not bool((matches.diffs < 0).any()):
        return found
    left = consolidate(found.rows)
    return Delta(left if len(left) else None, found.errors)


def _joined(probes: Probes, matches: Matches, joined: Joined) -> Delta:
    """The pairs of probes and their matches."""
    n = len(matches)
    if not n:
        return QUIET
    asked = (probes.positions, probes.times, probes.diffs)
    block, lost = pair(asked, matches.probe, matches.places, matches.times, matches.diffs)
    lanes, times, diffs = block[:4].reshape(2, 2, n), block[4], block[5]
    bad = block[6].astype(np.uint8) if lost else None
    structs = np.empty(len(matches.structs) + 1, np.int64)
    structs[0] = probes.struct.address
    structs[1:] = matches.structs
    pairs = Updates(joined.assembly.picked(structs, lanes[0], lanes[1]), times, diffs)
    found = Delta(pairs, None) if bad is None else split(pairs, message_where(bad, OVERFLOW))
    if joined.residual is None or found.rows is None:
        return found
    kept = filter_rows(found.rows, joined.residual)
    return Delta(kept.rows, concat([found.errors, kept.errors]))
