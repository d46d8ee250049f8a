"""A row of an incremental snapshot that is read after a later change of its key, in a partition that its topic was given between
the two, is left out: in any run, from a checkpoint, and where the log says what was bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.engine.batch.updates import DELETE, UPSERT
from headrace.sidecar.epochs.reclock import Reclock, ReclockLog
from headrace.sidecar.transactions import recent_key_changes
from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.model import ContinuityError, EpochKind
from tests.sidecar.support.batches import source_batch
from tests.sidecar.support.streams import changes, decoded, end
from tests.sidecar.support.transactions import transaction_of
from tests.sidecar.transactions.test_incremental_snapshot import (
    CLOSED,
    TABLE,
    WATERMARK,
    bound,
    event,
    read,
    restarted,
    streaming,
    told,
)


def widened(kind: int = UPSERT) -> TransactionAssembler:
    """The row with key 1 was changed at 95, and between two watermarks' ENDs and one at 150 at 130, in a partition that the
    topic was given."""
    a = streaming()
    older = event(4, 6, 90, offset=0, partition=1), end(6, 95, {TABLE: 1})
    later = event(8, 9, 120, offset=1, partition=1, kind=kind), end(9, 130, {TABLE: 1}, 3)
    a.accept(decoded(*older, end(7, 100, WATERMARK, 1), end(8, 105, WATERMARK, 2), *later, end(10, 150, WATERMARK, 4)))
    assert len(a.complete()) == 5
    return a


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", [UPSERT, DELETE])
@pytest.mark.parametrize(("after", "stands"), [(100, [6, 7]), (130, [6, 5, 7])])
def test_a_row_that_comes_after_a_later_change_of_its_key_in_another_partition_is_left_out(
    after: int, stands: list[int], kind: int, restart: bool
) -> None:
    """It was read before the change; the rows around it, and one that was read after the change, are as they are."""
    a = widened(kind)
    if restart:
        a = restarted(a)
        a.accept(decoded(end(11, 160, WATERMARK, 5)))
        a.complete()
    a.accept(decoded(read([(2, 6), (1, 5), (3, 7)], after, after + 1, offset=0)))
    assert told(a.complete()) == [(EpochKind.INCREMENTAL, stands)]
    assert (a.waiting(), a.pending_positions()) == (None, {})


@pytest.mark.parametrize("restart", [False, True])
def test_a_row_that_is_older_than_what_is_known_of_changes_is_an_error(
    monkeypatch: pytest.MonkeyPatch, restart: bool
) -> None:
    """Of more keys than are remembered the oldest are forgotten: whether such a row was changed since nobody can tell."""
    monkeypatch.setattr(recent_key_changes, "KEPT" if restart else "MOST", 2)
    a = widened()
    for n in range(4):
        change = changes(TABLE, [(7 + n, 1)], txid=20 + n, orders=[1], lsn=200 + n, offset=2 + n, partition=1)
        a.accept(decoded(change, end(20 + n, 210 + 10 * n, {TABLE: 1}, 5 + n)))
    a.complete()
    if restart:
        a = restarted(a)
        a.accept(decoded(end(30, 300, WATERMARK, 9)))
        a.complete()
    a.accept(decoded(read([(2, 6)], 236, 237, offset=0)))
    assert told(a.complete()) == [(EpochKind.INCREMENTAL, [6])]
    a.accept(decoded(read([(3, 6)], 110, 111, offset=1)))
    with pytest.raises(ContinuityError, match="nobody can tell whether it was changed since") as error:
        a.complete()
    assert error.value.where.items() >= {"table": TABLE, "topic": f"p.{TABLE}", "partition": 0, "offset": 1}.items()


def test_a_table_of_one_partition_remembers_nothing() -> None:
    a = streaming()
    a.accept(decoded(event(8, 9, 120, offset=0), end(9, 130, {TABLE: 1})))
    a.complete()
    assert a.remembered()["key_changes"] == {}


WIDER = [event(8, 9, 120, offset=0, partition=1), end(9, 130, {TABLE: 1}, 2)]
OVERTAKEN = read([(2, 6), (1, 5)], 101, 103, offset=0)


@pytest.mark.parametrize("then", [[OVERTAKEN], [OVERTAKEN, end(10, 150, {}, 3)]])
def test_a_row_that_a_change_has_overtaken_is_given_again_where_the_log_has_it(tmp_path: Path, then: list[Any]) -> None:
    once = bound(tmp_path / "log", [[*CLOSED, OVERTAKEN], WIDER])
    assert [v for _, _, _, v in once] == [[], [], [6, 5], [8]]
    assert bound(tmp_path / "log", [[*CLOSED, *WIDER], then])[:4] == once


def test_a_row_that_came_before_a_change_now_is_left_out_where_the_log_is_beyond_that(tmp_path: Path) -> None:
    """The run before had bound the change, and ended before it read the rows."""
    once = bound(tmp_path / "log", [[*CLOSED, *WIDER]])
    found = bound(tmp_path / "log", [[*CLOSED, OVERTAKEN], WIDER])
    assert found[:3] == once
    assert [v for _, _, _, v in found[3:]] == [[6]]


@pytest.mark.parametrize("key", [1, 2])
def test_as_where_the_log_has_something_behind_it_in_its_partition(tmp_path: Path, key: int) -> None:
    """The rows go with what is behind them, but for the one that was changed in another partition before that."""
    behind = [
        changes(TABLE, [(key, 9)], txid=11, orders=[1], lsn=140, offset=2), end(11, 145, {TABLE: 1}, 3)
    ]  # fmt: skip
    ends = [transaction_of("transaction", n, lsn, 1, ()) for n, lsn in [(5, 101), (6, 105), (9, 130), (11, 145)]]
    Reclock(ReclockLog(tmp_path / "log")).bind(source_batch("a", ends, {}))
    *_, last = bound(tmp_path / "log", [[*CLOSED, OVERTAKEN, *WIDER, *behind]])
    assert last[3] == [6, 9]
