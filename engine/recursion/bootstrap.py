"""Bootstrap: a recursive group from nothing, or from its first rounds, each round from the rows that the one before brought.

Invariant: each derivation is found once, in the round after the last of its rows came; a row stands with the round of its first
derivations and the number of them. Nothing is written but that state, which is its own until it ends: it may stop between any two
pieces of a round, and go on later. Called by `switching`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine.recursion.codec import Codec, lanes_of
from headrace.engine.recursion.derive import Deriver
from headrace.engine.recursion.meter import PIECE, Meter
from headrace.engine.recursion.portions import Portions, Progress
from headrace.engine.recursion.program import Program
from headrace.engine.recursion.state import ABSENT, Int32s, Lanes, Store


@dataclass(frozen=True)
class Over:
    """Where the rows of a variable are too many: the round, how many it had, how many more there would be, and those."""

    variable: int
    round: int
    so_far: int
    more: int
    rows: Lanes


@dataclass(frozen=True)
class Made:
    """The variables' rows; the work that it took, the rounds, the messages of derivations that fail, and where it stopped for
    too many rows.
    """

    stores: list[Store]
    work: int
    rounds: int
    errors: list[pa.Array]
    over: Over | None = None
    by_round: Sequence[int] = ()
    """By round, from 0: the work that it took by the end of it, as far as that is known; 0 for rounds that were begun."""


@dataclass(frozen=True)
class Begun:
    """The rounds of a Bootstrap up to `round`: the rows that these bring to each variable, in the order of their rounds."""

    round: int
    stores: list[Store]


def bootstrap(
    program: Program, outside: Sequence[Store], codec: Codec, meter: Meter, begun: Begun | None = None
) -> Portions[Made]:
    """All rounds, up to the program's last, over the rows that `outside` holds, which nobody changes meanwhile; those of `begun`
    are taken as they are, and none of their derivations may fail. Raises DiffOverflow.
    """
    own = begun.stores if begun else [Store(lanes_of(program.schemas[v])) for v in range(program.variables)]
    deriver, errors = Deriver(program, [*own, *outside], codec), list[pa.Array]()
    now, linear = begun.round if begun else 1, deriver.linear()
    before = [int((store.rounds[: store.size] < now).sum()) for store in own]
    at_first, by_round = meter.spent, [0] * (now + (begun is not None))
    for number, rule in enumerate(program.rules) if begun is None else ():
        if all(atom.relation >= program.variables for atom in rule.atoms):
            places = deriver.store(number, 0).places()
            for some in _counted(deriver, meter, number, 0, places, 1, ()):
                errors += some
                yield come_to(meter, own, now)
    if begun is None:
        by_round.append(meter.spent - at_first)
    over = too_many(program, own, before, now)
    while now < program.last and over is None:
        upper = [store.size for store in own]
        if upper == before:
            break
        head = -1 if linear is None else program.rules[linear].head
        if linear is not None and (meter.piece >= PIECE or upper[head] - before[head] <= meter.piece >> 1):
            now, last = deriver.count_rounds(linear, before[head], now, meter)
            by_round += _by_round(own[head], upper[head], len(by_round), by_round[-1], meter.spent - at_first)
            before = [store.size for store in own]
            before[head] = last
            yield come_to(meter, own, now)
        else:
            now += 1
            for some in _round(deriver, meter, before, upper, now):
                errors += some
                yield come_to(meter, own, now)
            before = upper
            by_round.append(meter.spent - at_first)
        over = too_many(program, own, before, now)
    for store in own:
        store.shrink()
    return Made(own, meter.spent, now, errors, over, by_round)


def come_to(meter: Meter, own: Sequence[Store], now: int) -> Progress:
    """How far a Bootstrap has come."""
    return Progress(meter.spent, now, sum(store.here for store in own))


def _by_round(store: Store, start: int, first: int, before: int, after: int) -> list[int]:
    """The work by the end of each of the rounds from `first` on, whose rows are those from the place `start` on, where a kernel
    took from `before` to `after` for all of them: by the derivations that they brought.
    """
    counts = np.bincount(store.rounds[start : store.size] - first, store.counts[start : store.size])
    found: list[int] = (before + (after - before) * np.cumsum(counts) / max(counts.sum(), 1)).astype(np.int64).tolist()
    return found


def _round(
    deriver: Deriver, meter: Meter, before: Sequence[int], upper: Sequence[int], now: int
) -> Iterator[Sequence[pa.Array]]:
    """The round `now`, from the rows that each variable has from `before` to `upper`; in pieces, each with its errors."""
    variables = deriver.program.variables
    for number, rule in enumerate(deriver.program.rules):
        own_atoms = [a for a, atom in enumerate(rule.atoms) if atom.relation < variables]
        for start in own_atoms:
            relation = rule.atoms[start].relation
            seeds = np.arange(before[relation], upper[relation], dtype=np.int32)
            yield from _counted(deriver, meter, number, start, seeds, now, own_atoms)


def too_many(program: Program, own: Sequence[Store], before: Sequence[int], now: int) -> Over | None:
    """Whether a variable has too many rows with those of the round `now`, which then are taken out of all of them.

    `before`: how many places there were before it. Copies of a row are as many rows.
    """
    if not program.most:
        return None
    for variable, (store, start) in enumerate(zip(own, before, strict=True)):
        counts = store.counts[: store.size].astype(np.int64)
        total = int(counts.sum()) if program.copies else store.size
        if total > program.most:
            so_far = int(counts[:start].sum()) if program.copies else start
            rows = store.lanes[start : store.size].copy()
            for other, size in zip(own, before, strict=True):
                other.drop_last(size)
                other.here = size
            return Over(variable, now - 1, so_far, total - so_far, rows)
    return None


def _counted(
    deriver: Deriver, meter: Meter, rule: int, start: int, seeds: Int32s, now: int, own: Sequence[int]
) -> Iterator[Sequence[pa.Array]]:
    """Count the derivations from some rows in the round `now`, each where the first of its newest rows is one of these; in
    pieces, each with its errors.
    """

    def latest(atom: int) -> int:
        return 0 if atom not in own else now - 2 if atom < start else now - 1

    if deriver.counts(rule, start):
        for _ in deriver.count(rule, start, seeds, latest, meter, now):
            yield ()
        return
    head = deriver.program.rules[rule].head
    for frame in deriver.derive(rule, start, seeds, latest, meter) if len(seeds) else ():
        for atom in [a for a, told in enumerate(deriver.program.rules[rule].atoms) if told.negated is not None]:
            found = frame.places[atom]
            rounds = deriver.store(rule, atom).rounds
            there = found >= 0
            there[there] = rounds[found[there]] != ABSENT
            frame = frame.take(~there)
        concluded = deriver.conclude(frame)
        meter.spend(len(concluded.rows))
        if head >= 0:
            deriver.stores[head].count_in(concluded.rows, now)
        yield concluded.errors


__all__ = ["Begun", "Made", "Over", "bootstrap", "come_to", "too_many"]
