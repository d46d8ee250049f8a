"""What a snapshot shows, by transaction ids of 32 bits, and what is left of a transaction that was loaded."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.connectors.commit_place import Lsn
from headrace.sidecar.transactions.model import Microbatch, SourceTransaction
from headrace.sidecar.transactions.partial import RowRange
from headrace.sidecar.transactions.pg_snapshot import Loaded, PgSnapshot
from tests.sidecar.support.streams import changes

CYCLE = 1 << 32


@pytest.mark.parametrize("cycles", [0, 1, 7])
def test_ids_of_the_log_are_the_nearest_ones(cycles: int) -> None:
    base = cycles * CYCLE
    seen = PgSnapshot.parse(f"{base + 100}:{base + 110}:{base + 103},{base + 107}")
    for full in range(base + 90, base + 120):
        wanted = full < base + 100 or (full < base + 110 and full not in (base + 103, base + 107))
        assert seen.shows(full % CYCLE) == wanted, full


def test_around_a_wraparound() -> None:
    seen = PgSnapshot.parse(f"{CYCLE - 5}:{CYCLE + 5}:{CYCLE - 2},{CYCLE + 3}")
    for full in range(CYCLE - 20, CYCLE + 20):
        wanted = full < CYCLE + 5 and full not in (CYCLE - 2, CYCLE + 3)
        assert seen.shows(full % CYCLE) == wanted, full


def test_a_snapshot_as_text_comes_back() -> None:
    for text in ("10:10:", "10:20:11,15"):
        assert str(PgSnapshot.parse(text)) == text


def test_what_was_loaded_is_taken_in_once() -> None:
    rows = (RowRange(changes("public.t", [(1, 10)], txid=7), 0, 1),)
    loaded = Loaded(PgSnapshot.parse("5:9:7"), 100)
    assert Loaded.of(loaded.json()) == loaded
    kept = SourceTransaction(Lsn(90), 0, rows, id=7)
    assert loaded.rest(kept) is kept, "it was open when the snapshot was taken"
    gone = loaded.rest(SourceTransaction(Lsn(95), 0, rows, id=8, errors={"public.t": {"x": 1}}))
    assert isinstance(gone, SourceTransaction)
    assert (gone.id, gone.place.order, gone.slices, gone.errors) == (8, 95, (), {})
    other = Microbatch(Lsn(1), 0, rows)
    assert loaded.rest(other) is other
    assert np.array_equal(rows[0].changes.offsets, rows[0].changes.offsets)
