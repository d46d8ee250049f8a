"""What workers tell of a run comes to the driver as it was, with references in place of its rows."""

from __future__ import annotations

import gc
import random

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.changes import (
    Decoded,
    Event,
    HeartbeatRow,
    Mark,
    MessageBatch,
    MissingColumn,
    SnapshotNotification,
    TableChanges,
    TransactionMark,
    Undecodable,
    VersionEnd,
)
from headrace.sidecar.intake.shard_answers import Standing, answer_out, answered, run_out
from headrace.sidecar.transactions.references import ROW_BITS, KeptRuns, key_identities, references_in
from tests.seeds import seeds

PLACE = ("shop.public.t", 1, 7)
MARKS: list[Mark] = [
    TransactionMark("END", 7, 1 << 40, {"public.t": 3}, 12, *PLACE, 9),
    SnapshotNotification("table", "public.t", 3, 12, *PLACE, 9),
    VersionEnd("public.t", 4, 1, 3, 2, ("public.t", "public.u"), 12, *PLACE, {"public.t": 3}),
    HeartbeatRow("u", "shop", (3, "now"), None, 99, *PLACE),
]
LANES = (
    "kinds",
    "offsets",
    "transactions",
    "orders",
    "lsns",
    "timestamps",
    "snapshot",
    "metadata",
    "attempts",
    "sent_ms",
)


def changes_of(draw: random.Random, size: int) -> TableChanges:
    def lane() -> np.ndarray:
        return np.array([draw.randrange(-1, 1 << 62) for _ in range(size)]) if draw.random() < 0.6 else np.full(size, 5)

    def flags() -> np.ndarray:
        return np.array([draw.random() < 0.5 for _ in range(size)])

    optional = draw.random() < 0.5
    return TableChanges(
        "public.t", PLACE[0], PLACE[1], pa.RecordBatch.from_arrays([pa.array(range(size))], names=["id"]),
        np.array([draw.randrange(3) for _ in range(size)], np.uint8), lane(), lane(), lane(), lane(), lane(),
        np.array([draw.randrange(3) for _ in range(size)], np.uint8), flags(), lane(), {0: flags()},
        flags() if optional else None, lane() if optional else None, lane() if draw.random() < 0.5 else None,
    )  # fmt: skip


@pytest.mark.parametrize("seed", seeds(8))
def test_every_lane_and_mark_arrives(seed: int) -> None:
    draw = random.Random(seed)
    runs = [changes_of(draw, draw.choice((1, 2, 50))) for _ in range(draw.randrange(1, 4))]
    numbers = [draw.randrange(1 << 40) for _ in runs]
    keys = [(np.array([draw.randrange(1 << 62) for _ in range(len(c))]), np.full(len(c), -3)) for c in runs]
    bad = Undecodable("public.t", *PLACE, "broken", "mend it", Event(7, 1, 8, snapshot=False), 3)
    unfit = Undecodable(None, *PLACE, "no such label")
    lost = MissingColumn("public.t", "v", *PLACE, "is gone", "declare it", gone=True, lsn=9)
    messages = MessageBatch(PLACE[0], PLACE[1], np.array([6, 7]), [b"k", None], [b"v", b"w"], np.array([1, 2]))
    decoded = Decoded(runs, MARKS, [bad], {}, [lost])
    kept = [(n, *k) for n, k in zip(numbers, keys, strict=True)]
    standing = Standing({"t": {0: 5}}, at_end=True, looked=[3], failed={"code": "source"})
    ledger = KeptRuns()
    [found], told = answered(answer_out([run_out(messages, decoded, kept, [unfit], 0.5)], standing), ledger)
    assert (ledger.numbers, ledger.last) == (sorted(numbers), max(numbers))
    assert told == standing
    assert (found.events, found.newest_ms, found.seconds) == (2, 2, 0.5)
    assert (found.offsets.tolist(), found.keys, found.values) == ([7], [None], [b"w"]), "what may be a dead letter"
    assert found.decoded.marks == MARKS
    assert (found.decoded.undecodable, found.unfit, found.decoded.lost) == ([bad], [unfit], [lost])
    for mine, theirs, number, identities in zip(found.decoded.changes, runs, numbers, keys, strict=True):
        assert (mine.table, mine.topic, mine.partition) == (theirs.table, theirs.topic, theirs.partition)
        for name in LANES:
            here, there = getattr(mine, name), getattr(theirs, name)
            assert (here is None) == (there is None)
            assert there is None or (here.dtype == there.dtype and here.tolist() == there.tolist()), name
        assert (mine.moved is not None and mine.moved.any()) == (theirs.moved is not None and theirs.moved.any())
        assert references_in(mine.rows).tolist() == [(number << ROW_BITS) + k for k in range(len(theirs))]
        for lane, wanted in zip(key_identities(mine.rows, [0]), identities, strict=True):
            assert lane.view(np.int64).tolist() == wanted.tolist()
    part = found.decoded.changes[0].take(np.array([0]))
    del found, mine, theirs
    gc.collect()
    assert sorted(ledger.take_gone()) == sorted(numbers[1:]), "a run is kept as long as any part of it is here"
    assert ledger.numbers == numbers[:1]
    del part
    gc.collect()
    assert (ledger.take_gone(), ledger.take_gone(), ledger.numbers) == (numbers[:1], [], [])
