"""The inner equi-join of updates with a trace, in time order: each update meets the rows that are live at its time.

Invariant: work and memory follow the updates, the histories of their keys and the pairs that are found, never the
product of two histories (decision 30). NULL keys meet nothing; a residual that fails, or a multiplicity that overflows,
is an error update; the rows hold columns of the left before those of the right, whichever side asks. Called by the
dataflow's join nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import Assembly
from headrace.engine.batch.keys import HashPlan, Keys, hash_rows, image_plan
from headrace.engine.batch.sort_layout import stretched
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import history, join
from headrace.engine.operators.aggregates import message_where
from headrace.engine.operators.chunked_delta import PIECE, Pieced, pieces_of
from headrace.engine.operators.chunked_delta import joined as together
from headrace.engine.operators.delta import QUIET, Delta, concat, take
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.operators.filtered_trace import Index
from headrace.engine.operators.group_versions import group
from headrace.engine.operators.linear import filter_rows, split
from headrace.engine.operators.rounds import Moment, stamps_of
from headrace.engine.trace.lookup import LATEST, Matches, TooMany
from headrace.engine.trace.spine import Spine

OVERFLOW = "a row's multiplicity does not fit 64 bits"

Wait = Callable[[int, Delta], None]
"""Takes what was found for a later round."""


class Span(NamedTuple):
    """Which part of a trace is asked: times are advanced to `since`; epochs ≥ `until` are left out."""

    since: int
    until: int | None


class Probes(NamedTuple):
    """Updates to look up: the payload their rows lie in, and each one's position there, key, time and diff.

    `image`: what of the rows tells them apart; None for all columns.
    """

    struct: Exported
    positions: Int64s
    keys: Keys
    times: Int64s
    diffs: Int64s
    image: HashPlan | None = None

    def take(self, chosen: Int64s) -> Probes:
        """The probes at the places `chosen`, in that order."""
        lanes = self.positions[chosen], self.keys.take(chosen), self.times[chosen], self.diffs[chosen]
        return Probes(self.struct, *lanes, self.image)


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


class _Side(NamedTuple):
    """Updates of one side by group and time, or by group, row and time; of each where its row lies.

    `sources`, `places`: which of the payloads at `structs`, and where in it. `owner` keeps these alive.
    """

    groups: Int64s
    times: Int64s
    diffs: Int64s
    sources: Int64s
    places: Int64s
    structs: Int64s
    owner: object

    def take(self, chosen: Int64s) -> _Side:
        """The updates at the places `chosen`, in that order."""
        groups, times, diffs, sources, places = (lane[chosen] for lane in self[:5])
        return _Side(groups, times, diffs, sources, places, self.structs, self.owner)


class _Grouped(NamedTuple):
    """Probes by the group of their key and by time, and each group's key."""

    probes: Probes
    groups: Int64s
    keys: Keys

    @classmethod
    def of(cls, probes: Probes) -> _Grouped:
        """Of probes in any order."""
        if len(probes.keys) == 1:
            return cls(probes, np.zeros(1, np.int64), probes.keys)
        found = group(probes.keys, probes.times)
        return cls(probes.take(found.order), found.ids[found.order], probes.keys.take(found.first))

    def halves(self) -> list[_Grouped]:
        """Those of the first half of the keys, and of the second."""
        middle = len(self.keys) // 2
        cut = int(np.searchsorted(self.groups, middle))
        return [self._part(slice(0, cut), slice(0, middle)), self._part(slice(cut, None), slice(middle, None))]

    def _part(self, some: slice, keys: slice) -> _Grouped:
        struct, positions, own, times, diffs, image = self.probes
        own = Keys(own.hash[some], own.check[some])
        probes = Probes(struct, positions[some], own, times[some], diffs[some], image)
        return _Grouped(
            probes, self.groups[some] - (keys.start or 0), Keys(self.keys.hash[keys], self.keys.check[keys])
        )

    def side(self) -> _Side:
        """The updates, by group and time."""
        probes = self.probes
        here = np.array([probes.struct.address])
        return _Side(
            self.groups, probes.times, probes.diffs, _zeros(len(self.groups)), probes.positions, here, probes.struct
        )

    def history(self) -> tuple[_Side, Int64s]:
        """The updates, by group, row and time, and numbers that those of one row share."""
        struct = self.probes.struct
        plan = self.probes.image or image_plan(struct.schema)
        high, low, _ = hash_rows(struct, struct.num_rows, plan)
        high, low = high[self.probes.positions], low[self.probes.positions]
        order = np.lexsort((self.probes.times, low, high, self.groups))
        new = np.ones(len(order), np.bool_)
        new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
        return self.side().take(order), np.cumsum(new)


_Made = Callable[[_Grouped, Matches], Delta]
"""What is made of probes and the updates of their keys, each key's once."""


def without_nulls(rows: Exported, key: Sequence[int]) -> Int64s | None:
    """Positions of the rows whose key has no NULL, or None if that is all of them."""
    mask = None
    for k in key:
        if rows.nulls(k):
            valid = rows.rows.column(k).is_valid().to_numpy(zero_copy_only=False)
            mask = valid if mask is None else mask & valid
    return None if mask is None else np.flatnonzero(mask)


def join_trace(probes: Probes, index: Index, span: Span, joined: Joined, *, strictly: bool) -> Delta:
    """`probes` joined with the rows of `index` that are live at their times, or (`strictly`) just before them.

    A row that came and went before its probe is no pair of that. In pieces where the pairs are many. Raises DiffOverflow.
    """

    def made(some: _Grouped, matches: Matches) -> Delta:
        lives = _lives(_side_of(matches), matches.row)
        return _paired(some.side(), lives, joined, strictly=strictly)

    return _met(probes, index, span, made)


def join_round(probes: Probes, index: Index, moment: Moment, joined: Joined, wait: Wait, *, old: bool) -> Delta:
    """`probes`, of the moment's round, joined with `index`: the pairs of this round; `wait` gets those of later ones.

    Both histories are added up in the order of epochs; a pair stands at the later of its two. `old`: without the trace's
    updates of this moment. In pieces where the pairs are many, and `wait` is called as they are made. Raises DiffOverflow.
    """

    def made(some: _Grouped, matches: Matches) -> Delta:
        here = QUIET
        for at, found in moment.by_round(_without_new(matches, moment) if old else matches):
            pairs = _product(some, found, joined)
            if at == moment.now:
                here = pairs
            else:
                for piece in pieces_of(pairs):
                    wait(at, piece)
        return here

    return _met(probes, index, Span(moment.lower - 1, None), made)


def look_up_round(probes: Probes, index: Index, moment: Moment, joined: Joined, *, old: bool) -> Delta:
    """`probes`, rows with stamps that set out in the moment's round, joined with the updates of `index` until now.

    The stamp of a pair is the least round that is ≥ the probe's and the update's; it stands at the later epoch. `old`:
    without the trace's updates of this moment. In pieces where the pairs are many. Raises DiffOverflow.
    """
    stamps = stamps_of(probes.struct)[probes.positions]
    deltas = []
    for stamp in np.unique(stamps).tolist():
        some = probes.take(np.flatnonzero(stamps == stamp))
        deltas.append(_stamped_pairs(some, index, moment._replace(now=stamp), joined, moment if old else None))
    return together(deltas)


def _stamped_pairs(probes: Probes, index: Index, moment: Moment, joined: Joined, without: Moment | None) -> Delta:
    """`look_up_round`, of probes whose stamp is the moment's round; `without`: the moment whose updates are left out."""

    def made(some: _Grouped, matches: Matches) -> Delta:
        deltas = []
        for at, found in moment.by_round(matches if without is None else _without_new(matches, without)):
            moved = some if at == moment.now else some._replace(probes=_restamped(some.probes, at))
            deltas.append(_product(moved, found, joined))
        return together(deltas)

    return _met(probes, index, Span(moment.since, None), made)


def _restamped(probes: Probes, stamp: int) -> Probes:
    """The probes with another stamp; no other column is copied."""
    rows = probes.struct.rows
    stamps = pa.array(np.full(rows.num_rows, stamp))
    return probes._replace(struct=Exported(pa.RecordBatch.from_arrays([stamps, *rows.columns[1:]], schema=rows.schema)))


def _without_new(matches: Matches, moment: Moment) -> Matches:
    """The matches but for those of the moment itself."""
    new = moment.is_new(matches.times)
    return matches.take(np.flatnonzero(~new)) if new.any() else matches


def without_partner(rows: Updates, key: tuple[Keys, Int64s | None], index: Index, as_of: int) -> Updates | None:
    """The rows of a content at `as_of` whose key is not in `index` then, nothing put together. Raises DiffOverflow.

    `key`: the identities of all rows, and the positions of those without NULL, which alone meet any (None: all).
    """
    keys, valid = key
    alone = np.ones(len(rows), np.bool_)
    for start in range(0, len(rows) if valid is None else len(valid), PIECE):
        asked = np.arange(start, min(start + PIECE, len(rows))) if valid is None else valid[start : start + PIECE]
        found = group(keys.take(asked))
        present = np.zeros(found.count, np.bool_)
        present[index.gather(keys.take(asked[found.first]), as_of, as_of + 1).probe] = True
        alone[asked[present[found.ids]]] = False
    return rows if alone.all() else take(rows, np.flatnonzero(alone)) if alone.any() else None


def _met(probes: Probes, index: Index, span: Span, made: _Made) -> Delta:
    """What `made` makes of the probes and the updates of their keys in `span`. Raises DiffOverflow."""
    kept = index.sifted(probes.keys) if isinstance(index, Spine) else None
    if kept is not None:
        # Many changes of a table meet a query of few keys: only those that may are numbered by group.
        probes = probes.take(kept)
    return _looked_up(_Grouped.of(probes), index, span, made) if len(probes.keys) else QUIET


def _looked_up(some: _Grouped, index: Index, span: Span, made: _Made) -> Delta:
    """As `_met`; fewer keys at a time where they have more updates than a piece may have."""
    try:
        # Fewer keys than one do not have less.
        found = index.gather(some.keys, *span, PIECE if len(some.keys) > 1 else LATEST)
    except TooMany:
        return Pieced(piece for half in some.halves() for piece in pieces_of(_looked_up(half, index, span, made)))
    return made(some, found) if len(found) else QUIET


def _product(probes: _Grouped, matches: Matches, joined: Joined) -> Delta:
    """All pairs of two histories, each at its later epoch: both are added up in the order of epochs.

    `matches` have epochs as times. A match that is later than a probe of its key meets the probes' rows that are live then.
    """
    is_back = (matches.times[1:] < matches.times[:-1]) & (matches.row[1:] == matches.row[:-1])
    if is_back.any():
        matches = matches.take(np.lexsort((matches.times, matches.row)))
    found = _paired(probes.side(), _lives(_side_of(matches), matches.row), joined, strictly=False)
    late = np.flatnonzero(matches.times > int(probes.probes.times.min()))
    if not len(late):
        return found
    events = _side_of(matches).take(late)
    events = events.take(np.lexsort((events.times, events.groups)))
    return together([found, _paired(events, _lives(*probes.history()), joined, strictly=True, is_swapped=True)])


def _side_of(matches: Matches) -> _Side:
    sources, places = matches.places
    return _Side(matches.probe, matches.times, matches.diffs, sources, places, matches.structs, matches.batches)


class _Lives(NamedTuple):
    """Lifespans of rows, by group and begin; `side`: of each the place and the payload of its row."""

    block: Int64s
    side: _Side


def _lives(side: _Side, rows: Int64s) -> _Lives:
    """The lifespans of a side's rows. Raises DiffOverflow."""
    block, size, overflow = history.lifespans(side.groups, rows, side.times, side.diffs)
    if overflow:
        raise DiffOverflow
    return _Lives(block[:, :size], side)


def _paired(askers: _Side, lives: _Lives, joined: Joined, *, strictly: bool, is_swapped: bool = False) -> Delta:
    """The pairs of updates and what is live at their times; `is_swapped`: the updates are of the trace, not the probes."""
    block = lives.block
    spans = block[history.GROUP], block[history.BEGIN], block[history.END], block[history.COPIES]
    cursor, live = np.zeros(join.CURSOR, np.int64), np.empty(block.shape[1], np.int64)
    asking = askers.groups, askers.times, askers.diffs

    def piece() -> Delta:
        pairs, size, lost = join.meet(asking, spans, strictly, PIECE, cursor, live)
        return _rows_of(pairs[:, :size], lost, (askers, lives), joined, is_swapped=is_swapped)

    first = piece()
    if cursor[0] == len(askers.groups):
        return first

    def pieces() -> Iterator[Delta]:
        yield first
        while cursor[0] < len(askers.groups):
            yield piece()

    return Pieced(pieces())


def _rows_of(pairs: Int64s, lost: int, sides: tuple[_Side, _Lives], joined: Joined, *, is_swapped: bool) -> Delta:
    """The rows of pairs, with what the residual makes of them."""
    size = pairs.shape[1]
    if not size:
        return QUIET
    askers, (block, side) = sides
    asker, update = pairs[join.ASKER], block[history.UPDATE][pairs[join.SPAN]]
    sources = [askers.sources[asker], side.sources[update] + len(askers.structs)]
    places = [askers.places[asker], side.places[update]]
    if is_swapped:
        sources, places = sources[::-1], places[::-1]
    structs = np.concatenate([askers.structs, side.structs])
    rows = joined.assembly.picked(structs, np.stack(sources), np.stack(places))
    updates = Updates(rows, pairs[join.TIME].copy(), pairs[join.DIFF].copy())
    bad = pairs[join.LOST].astype(np.uint8) if lost else None
    found = Delta(updates, None) if bad is None else split(updates, message_where(bad, OVERFLOW))
    if joined.residual is None or found.rows is None:
        return found
    kept = filter_rows(found.rows, joined.residual)
    return Delta(kept.rows, concat([found.errors, kept.errors]))


def _zeros(size: int) -> Int64s:
    return stretched(np.zeros(1, np.int64), size)
