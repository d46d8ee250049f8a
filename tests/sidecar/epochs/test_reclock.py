"""Epochs are minted once, durably, and again the same after a restart."""

from __future__ import annotations

import errno
import json
import os
import random
import threading
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.commit_place import Lsn
from headrace.sidecar.epochs.epoch_binding import Binding, BoundTransaction, ReclockError
from headrace.sidecar.epochs.reclock import Reclock, ReclockLog
from headrace.sidecar.state.filesystem import LocalDisk
from headrace.sidecar.transactions.model import EpochKind, Transaction, goes_on
from headrace.sidecar.transactions.partial import RowRange
from tests.sidecar.support.batches import source_batch
from tests.sidecar.support.streams import changes
from tests.sidecar.support.transactions import transaction_of


def transaction(id_: int, lsn: int, kind: str = "transaction") -> Transaction:
    return transaction_of(kind, id_, lsn)


def at(offset: int) -> dict[str, dict[int, int]]:
    return {"t": {0: offset}}


def test_a_binding_is_on_disk_when_it_is_given(tmp_path: Path) -> None:
    log = ReclockLog(tmp_path / "log")
    bound = Reclock(log).bind(source_batch("a", [transaction(7, 70), transaction(8, 80)], at(5)))
    assert [(b.first, len(b.stamps)) for b, _ in bound] == [(1, 2)]
    checksum, _, text = (tmp_path / "log").read_bytes().rstrip().partition(b" ")
    assert int(checksum, 16) == zlib.crc32(text)
    line = json.loads(text)
    assert line["ids"] == [[7, 70, 1], [8, 80, 1]]
    assert line["positions"] == {"t": {"0": 5}}


def test_after_a_restart_the_same_transactions_get_the_same_epochs_in_the_same_interleaving(tmp_path: Path) -> None:
    first = Reclock(ReclockLog(tmp_path / "log"))
    first.bind(source_batch("a", [transaction(1, 10)], at(1)))
    first.bind(source_batch("b", [transaction(5, 50)], at(1)))
    first.bind(source_batch("a", [transaction(2, 20), transaction(3, 30)], at(3)))
    again = Reclock(ReclockLog(tmp_path / "log"), frontier=2)
    assert again.bind(source_batch("a", [transaction(2, 20), transaction(3, 30), transaction(4, 40)], at(4))) == []
    bound = again.bind(source_batch("b", [transaction(5, 50)], at(1)))
    seen = [(b.first + i, b.source, t.id) for b, ts in bound for i, t in enumerate(ts)]
    assert seen == [(2, "b", 5), (3, "a", 2), (4, "a", 3), (5, "a", 4)]
    assert again.replaying is None


def test_other_transactions_than_the_log_has_bound_are_refused(tmp_path: Path) -> None:
    Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", [transaction(1, 10)], at(1)))
    with pytest.raises(ReclockError, match="other transactions"):
        Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", [transaction(2, 20)], at(1)))


def test_cuts_are_cut_again_at_the_logged_offsets(tmp_path: Path) -> None:
    def cut(start: int, stop: int) -> Transaction:
        rows = changes("t", [(i, i) for i in range(start, stop)], offset=start)
        return transaction_of("cut", -1, 0, 1, (RowRange(rows, 0, len(rows)),))

    first = Reclock(ReclockLog(tmp_path / "log"))
    first.bind(source_batch("a", [cut(0, 3)], {"p.t": {0: 3}}))
    first.bind(source_batch("a", [cut(3, 4)], {"p.t": {0: 4}}))
    again = Reclock(ReclockLog(tmp_path / "log"))
    assert again.bind(source_batch("a", [cut(0, 2)], {"p.t": {0: 2}})) == []
    bound = again.bind(source_batch("a", [cut(2, 6)], {"p.t": {0: 6}}))
    sizes = [(b.first, sum(s.stop - s.start for t in ts for s in t.slices)) for b, ts in bound]
    assert sizes == [(1, 3), (2, 1), (3, 2)]


def test_a_torn_last_line_is_cut_off_and_a_torn_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = Reclock(ReclockLog(path))
    log.bind(source_batch("a", [transaction(1, 10)], at(1)))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert len(ReclockLog(path).bindings) == 1
    assert path.read_bytes() == whole
    path.write_bytes(whole[:20] + b"\n" + whole)
    with pytest.raises(ReclockError, match="damaged"):
        ReclockLog(path)


@pytest.mark.parametrize(("found", "follows"), [(10, True), (0, True), (20, False)])
def test_a_later_snapshot_is_not_the_one_that_the_log_has_bound(tmp_path: Path, found: int, follows: bool) -> None:
    """Its connector took another one before the first checkpoint: the sinks have the rows of the first one at that epoch. One
    without rows has no LSN: other tables may be read now."""
    Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", [transaction(-1, 10, "snapshot")], at(1)))
    again = Reclock(ReclockLog(tmp_path / "log"))
    if follows:
        [(binding, [snapshot])] = again.bind(source_batch("a", [transaction(-1, found, "snapshot")], at(1)))
        assert (binding.first, snapshot.place.order) == (1, found)
    else:
        with pytest.raises(ReclockError, match="other transactions"):
            again.bind(source_batch("a", [transaction(-1, found, "snapshot")], at(1)))


@pytest.mark.parametrize("kind", ["snapshot", "resnapshot"])
def test_another_snapshot_is_refused_though_it_has_fewer_portions(tmp_path: Path, kind: str) -> None:
    """No more of it ever come: what the log has bound would be waited for in vain."""

    def cut(count: int, lsn: int) -> list[Transaction]:
        return [transaction_of(kind, -1, lsn, more=i + 1 < count) for i in range(count)]

    Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", cut(3, 10), at(3)))
    again = Reclock(ReclockLog(tmp_path / "log"))
    assert again.bind(source_batch("a", [], at(0))) == []
    with pytest.raises(ReclockError, match="other transactions"):
        again.bind(source_batch("a", cut(2, 20), at(5)))


@pytest.mark.parametrize("kind", ["transaction", "resnapshot"])
@pytest.mark.parametrize(("bound", "found"), [(1, 3), (3, 1), (2, 3), (3, 2)])
def test_a_transaction_has_the_portions_that_the_log_has_bound(
    tmp_path: Path, bound: int, found: int, kind: str
) -> None:
    """It has fewer rows, and so fewer portions, where a table of it stood still, then or now."""

    def cut(count: int) -> list[Transaction]:
        rows = changes("t", [(i, i) for i in range(count)], offset=0)
        return [transaction_of(kind, 1, 10, 1, (RowRange(rows, i, i + 1),), more=i + 1 < count) for i in range(count)]

    Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", [*cut(bound), transaction(2, 20)], at(4)))
    again = Reclock(ReclockLog(tmp_path / "log"))
    runs = again.bind(source_batch("a", [*cut(found), transaction(2, 20)], at(4)))
    given = [t for _, run in runs for t in run]
    assert [(t.place.order, goes_on(t)) for t in given] == [(10, True)] * (bound - 1) + [(10, False), (20, False)]
    assert [s.start for t in given for s in t.slices] == list(range(found))
    assert (runs[0][0].first, again.frontier, again.replaying) == (1, bound + 2, None)


def test_trimming_keeps_what_is_still_needed(tmp_path: Path) -> None:
    log = ReclockLog(tmp_path / "log")
    reclock = Reclock(log)
    for i in range(10):
        reclock.bind(source_batch("a", [transaction(i, i)], at(i)))
    log.forget(10, 2)
    reclock.bind(source_batch("a", [transaction(10, 10)], at(10)))
    assert [b.first for b in ReclockLog(tmp_path / "log").bindings] == [8, 9, 10, 11]


def test_a_trimmed_log_still_knows_the_transactions_of_a_quiet_source(tmp_path: Path) -> None:
    """Its connector may repeat them after a restart, however much another source has sent since."""
    log = ReclockLog(tmp_path / "log")
    reclock = Reclock(log)
    for i in range(3):
        reclock.bind(source_batch("quiet", [transaction(100 + i, 100 + i)], at(i)))
    for i in range(10):
        reclock.bind(source_batch("busy", [transaction(i, i)], at(i)))
    for _ in range(2):
        log.forget(14, 2)
    again = Reclock(ReclockLog(tmp_path / "log"), 14)
    assert list(again.bound_transactions("quiet", 14)) == [(101, 101), (102, 102)]
    assert list(again.bound_transactions("busy", 14)) == [(8, 8), (9, 9)]


@pytest.mark.parametrize("kind", ["resync", "chunk", "mended"])
def test_epochs_of_no_transaction_push_none_out_of_a_trimmed_log(tmp_path: Path, kind: str) -> None:
    """Found by the simulator (seed 521381): five letters were replayed, and a restart knew no transaction any more."""
    log = ReclockLog(tmp_path / "log")
    log.append([Binding(0, tuple(BoundTransaction("a", EpochKind.TRANSACTION, i, Lsn(i), i) for i in range(3)), at(3))])
    for i in range(10):
        log.append([Binding(3 + i, (BoundTransaction("a", EpochKind(kind), -3, Lsn(2), i),), at(3))])
    log.forget(13, 2)
    assert log.size < 1200
    again = Reclock(ReclockLog(tmp_path / "log"), 13)
    assert (2, 2) in again.bound_transactions("a", 13)


def test_a_log_is_written_anew_only_where_half_of_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by an hour of soak: where nothing could go, all of it was read and written at each checkpoint."""
    written = 0

    def count(self: LocalDisk, path: Path, parts: Iterable[Any]) -> None:
        nonlocal written
        data = b"".join(map(bytes, parts))
        written += len(data)
        path.write_bytes(data)

    monkeypatch.setattr(LocalDisk, "write", count)
    log = ReclockLog(tmp_path / "log")
    reclock = Reclock(log)
    appended = 0
    for i in range(1000):
        before = log.size
        reclock.bind(source_batch("a", [transaction(i, i)], at(i)))
        appended += log.size - before
        log.forget(i + 1, 50)
        assert log.size < 110 * 200
    assert 0 < written < appended
    known = list(Reclock(ReclockLog(tmp_path / "log", before=1001), 1001).bound_transactions("a", 1001))
    assert known[-50:] == [(i, i) for i in range(950, 1000)]


@pytest.mark.parametrize("seed", range(5))
def test_what_a_checkpoint_holds_is_known_as_well_in_columns(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    reclock = Reclock(ReclockLog(tmp_path / "log"))
    for i in range(40):
        kind = chance.choice(["transaction", "snapshot", "cut", "mended"])
        some = [transaction(100 * i + k, 10 * i + k, kind) for k in range(chance.randint(1, 3))]
        reclock.bind(source_batch(chance.choice("ab"), some, at(i)))
    whole = ReclockLog(tmp_path / "log")
    last = reclock.frontier
    for before in (1, chance.randint(2, last), last):
        log = ReclockLog(tmp_path / "log", before=before)
        assert all(b.epochs.stop > before for b in log.bindings)
        assert [e for r in log.bound for e in r] == [e for b in whole.bindings for e in b.epochs]
        for source in "ab":
            at_start = Reclock(log, before).bound_transactions(source, before)
            assert list(at_start) == list(Reclock(whole, before).bound_transactions(source, before))


def test_what_was_bound_after_the_checkpoint_takes_no_place_in_a_trimmed_log(tmp_path: Path) -> None:
    """Found by the simulator (seed 380): a restart begins at the checkpoint, and knew no transaction before it."""
    log = ReclockLog(tmp_path / "log")
    reclock = Reclock(log)
    for i in range(9):
        reclock.bind(source_batch("a", [transaction(i, i)], at(i)))
    log.forget(5, 2)
    again = Reclock(ReclockLog(tmp_path / "log"), 5)
    assert list(again.bound_transactions("a", 5)) == [(2, 2), (3, 3)]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    reclock = Reclock(ReclockLog(tmp_path / "log"))
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ReclockError, match="No space left"):
        reclock.bind(source_batch("a", [transaction(1, 1)], at(1)))


def test_bindings_are_durable_once_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, synced = threading.Event(), threading.Event()

    def sync(_: int) -> None:
        allowed.wait(10)
        synced.set()

    monkeypatch.setattr(os, "fdatasync", sync)
    with ThreadPoolExecutor(1) as executor:
        reclock = Reclock(ReclockLog(tmp_path / "log", executor))
        assert reclock.bind(source_batch("a", [transaction(1, 1)], at(1)))
        assert not synced.is_set()
        allowed.set()
        reclock.settle()
        assert synced.is_set()


def test_a_disk_that_refuses_to_sync_is_named_before_anything_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", broken)
    with ThreadPoolExecutor(1) as executor:
        reclock = Reclock(ReclockLog(tmp_path / "log", executor))
        reclock.bind(source_batch("a", [transaction(1, 1)], at(1)))
        with pytest.raises(ReclockError, match="Input/output error"):
            reclock.settle()


def test_a_digit_changed_on_disk_is_noticed_and_a_log_of_a_format_before_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reclock = Reclock(ReclockLog(path))
    for i in range(3):
        reclock.bind(source_batch("a", [transaction(i, i)], at(i)))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0].replace(b'"0":0', b'"0":4') + lines[1] + lines[2])
    with pytest.raises(ReclockError, match=r"damaged .*byte=0"):
        ReclockLog(path)
    path.write_bytes(lines[0] + lines[1] + lines[1])
    assert len(ReclockLog(path).bindings) == 2, "what is bound a second time is no binding"
    for version in (b'"v":1', b'"v":3'):
        path.write_bytes(b"".join(line[9:].replace(b'"v":4', version) for line in lines))
        with pytest.raises(ReclockError, match=rf"another format .*found={version[-1:].decode()}, known=4"):
            ReclockLog(path)


def test_rows_of_incremental_snapshots_stand_again_where_the_log_has_them(tmp_path: Path) -> None:
    """However they come then: in one run or several, before or behind their transactions; and no row goes into an earlier epoch,
    though all of these bindings have the same positions."""

    def chunk(start: int, stop: int) -> Transaction:
        rows = changes("t", [(i, i) for i in range(start, stop)], offset=start)
        return transaction_of("chunk", -1, 10, 1, (RowRange(rows, 0, len(rows)),))

    def offsets(given: list[tuple[Binding, list[Transaction]]]) -> list[tuple[int, int, list[int]]]:
        return [
            (b.first + i, t.id, [o for s in t.slices for o in s.changes.offsets[s.start : s.stop].tolist()])
            for b, ts in given
            for i, t in enumerate(ts)
        ]

    here = {"p.t": {0: 9}}
    first = Reclock(ReclockLog(tmp_path / "log"))
    bound = offsets(
        first.bind(
            source_batch(
                "a",
                [transaction(1, 10), chunk(0, 2), transaction(2, 20), chunk(2, 5)],
                here,
            )
        )
    )
    assert bound == [(1, 1, []), (2, -1, [0, 1]), (3, 2, []), (4, -1, [2, 3, 4])]

    again = Reclock(ReclockLog(tmp_path / "log"))
    assert offsets(again.bind(source_batch("a", [transaction(1, 10)], {"p.t": {0: 0}}))) == bound[:1]
    assert again.bind(source_batch("a", [transaction(2, 20)], {"p.t": {0: 0}})) == []
    assert offsets(again.bind(source_batch("a", [chunk(0, 4)], {"p.t": {0: 4}}))) == bound[1:3]
    rest = again.bind(source_batch("a", [chunk(4, 7), transaction(3, 30), chunk(7, 8)], here))
    assert offsets(rest) == [bound[3], (5, -1, [5, 6]), (6, 3, []), (7, -1, [7])]
    assert list(Reclock(ReclockLog(tmp_path / "log")).bound_transactions("a", 9)) == [(1, 10), (2, 20), (3, 30)]

    third = Reclock(ReclockLog(tmp_path / "log"), frontier=3)
    whole = third.bind(
        source_batch(
            "a",
            [transaction(2, 20), chunk(2, 8), transaction(3, 30), transaction(4, 40)],
            here,
        )
    )
    assert offsets(whole) == [bound[2], bound[3], (5, -1, [5, 6]), (6, 3, []), (7, -1, [7]), (8, 4, [])]


def test_rows_that_the_log_does_not_have_yet_stand_where_they_came(tmp_path: Path) -> None:
    rows = changes("t", [(1, 1)], offset=0)
    chunk = transaction_of("chunk", -1, 10, 1, (RowRange(rows, 0, 1),))
    Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", [transaction(1, 10)], at(1)))
    again = Reclock(ReclockLog(tmp_path / "log"))
    [followed, *fresh] = again.bind(
        source_batch(
            "a",
            [transaction(1, 10), transaction(2, 20), chunk, transaction(3, 30)],
            at(4),
        )
    )
    assert [t.id for t in followed[1]] == [1]
    assert [t.id for _, ts in fresh for t in ts] == [2, -1, 3]
