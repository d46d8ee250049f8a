"""Groups and view states over the sink in memory: what is offered, what is left out, what waits, what fails."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.commit_place import Lsn
from headrace.connectors.sink import EpochStamp, Frontier, SinkAway, SinkError, SinkView, ViewChanges
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow import Output
from headrace.sidecar.delivery import sink_writer
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.epochs.reclock import Reclock
from headrace.sidecar.runtime.components import RuntimeComponents
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.telemetry.metrics import Metrics
from headrace.sidecar.transactions.model import Transaction
from tests.contracts.sink import LINES, changes, frontier, view_of, whole
from tests.doubles.memory import MemorySink
from tests.sidecar.support.process import wait

PRICES = view_of("prices", ["product"], product="text!", price="integer")
MESSAGES = pa.schema([("error", pa.large_string())])
A, B, C = ("a", 1), ("b", 2), ("c", 3)


class Scripted:
    """An output whose takes and content the test sets."""

    def __init__(self, view: SinkView) -> None:
        self.view = view
        self.rows: list[tuple[tuple[object, ...], int, int]] = []
        self.errors: list[tuple[str, int, int]] = []
        self.content: list[tuple[object, ...]] = []
        self.failing: list[tuple[str, int, int]] = []

    def take(self) -> tuple[Updates, Updates]:
        rows, errors = changes(self.view, *self.rows), self.errors
        self.rows, self.errors = [], []
        return Updates(rows.rows, rows.epochs, rows.diffs), self._messages(errors)

    def _messages(self, errors: list[tuple[str, int, int]]) -> Updates:
        batch = pa.RecordBatch.from_arrays([pa.array([m for m, _, _ in errors], pa.large_string())], schema=MESSAGES)
        return Updates(
            batch, np.array([e for _, e, _ in errors], np.int64), np.array([d for *_, d in errors], np.int64)
        )

    def snapshot(self, as_of: int) -> tuple[Updates, Updates]:
        made = whole(self.view, as_of, *self.content)
        return Updates(made.rows, made.epochs, made.diffs), self._messages(self.failing)


class Slow(MemorySink):
    """Writes only while `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.entered = threading.Event()

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        self.entered.set()
        assert self.gate.wait(10)
        super().write(changes, frontier, stamps, errors)


def opened(sink: MemorySink, *views: SinkView, threaded: bool = False, epoch: int = 0) -> SinkWriter:
    sink.open(views)
    writer = SinkWriter(sink, threaded=threaded)
    writer.start(epoch)
    return writer


@pytest.fixture
def slow() -> Iterator[tuple[Slow, SinkWriter]]:
    sink = Slow()
    writer = opened(sink, LINES, threaded=True)
    yield sink, writer
    sink.gate.set()
    writer.close()


def rows(sink: MemorySink, view: SinkView) -> Counter[tuple[object, ...]]:
    return sink.store.rows[view.name]


def test_what_is_offered_is_written_and_told() -> None:
    sink = MemorySink()
    writer = opened(sink, LINES)
    told: list[tuple[str, int, list[int]]] = []
    writer.on_written(lambda name, at, stamps, seconds: told.append((name, at.epoch, list(stamps))))
    writer.offer({LINES.name: changes(LINES, (A, 1, 1), (B, 2, 2))}, frontier(2), {2: EpochStamp("shop", Lsn(1), 1)})
    assert rows(sink, LINES) == {A: 1, B: 2}
    assert sink.store.frontier == frontier(2)
    assert told == [("memory", 2, [2])]
    assert writer.epoch == 2


def test_epochs_that_the_sink_holds_are_left_out() -> None:
    sink = MemorySink()
    opened(sink, LINES).offer({LINES.name: changes(LINES, (A, 5, 1))}, frontier(5), {})
    writer = opened(sink, LINES, epoch=5)
    writer.offer({LINES.name: changes(LINES, (A, 4, 1))}, frontier(4), {}, {LINES.name: "overflow"})
    assert sink.writes == 1, "nothing of a repetition is new"
    assert not sink.store.errors, "nor is the state of a view at an epoch that is over"
    writer.offer({LINES.name: changes(LINES, (A, 5, 1), (B, 6, 1))}, frontier(6), {})
    assert rows(sink, LINES) == {A: 1, B: 1}
    assert sink.store.frontier == frontier(6)


def test_a_frontier_moves_without_changes_and_only_forwards() -> None:
    sink = MemorySink()
    writer = opened(sink, LINES)
    writer.offer({}, frontier(3), {})
    writer.offer({}, frontier(3), {})
    writer.offer({}, frontier(2), {})
    assert sink.writes == 1
    assert sink.store.frontier == frontier(3)


def test_a_whole_view_replaces_what_waits_and_what_is_there(slow: tuple[Slow, SinkWriter]) -> None:
    sink, writer = slow
    writer.offer({LINES.name: changes(LINES, (A, 1, 1))}, frontier(1), {})
    assert sink.entered.wait(5)
    writer.offer({LINES.name: changes(LINES, (A, 2, 1))}, frontier(2), {})
    writer.offer({LINES.name: whole(LINES, 3, C)}, frontier(3), {})
    writer.offer({LINES.name: changes(LINES, (B, 4, 1))}, frontier(4), {})
    sink.gate.set()
    assert writer.drain(5)
    assert rows(sink, LINES) == {C: 1, B: 1}
    assert sink.writes == 2, "what waited went as one write"


def test_rows_that_are_being_written_wait_too(slow: tuple[Slow, SinkWriter]) -> None:
    """Found by `make alerts`: a write that somebody's lock held up was nobody's backlog."""
    sink, writer = slow
    writer.offer({LINES.name: changes(LINES, (A, 1, 1))}, frontier(1), {})
    assert sink.entered.wait(5)
    writing = writer.backlog_bytes
    assert writing > 0
    writer.offer({LINES.name: changes(LINES, (A, 2, 1))}, frontier(2), {})
    assert writer.backlog_bytes > writing
    sink.gate.set()
    assert writer.drain(5)
    assert writer.backlog_bytes == 0


def test_a_full_backlog_slows_the_one_who_offers(
    slow: tuple[Slow, SinkWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_writer, "MAX_BACKLOG_BYTES", 1)
    sink, writer = slow
    writer.offer({LINES.name: changes(LINES, (A, 1, 1))}, frontier(1), {})
    assert sink.entered.wait(5)
    writer.offer({LINES.name: changes(LINES, (A, 2, 1))}, frontier(2), {})
    third = threading.Thread(target=writer.offer, args=({LINES.name: changes(LINES, (A, 3, 1))}, frontier(3), {}))
    third.start()
    third.join(0.2)
    assert third.is_alive(), "over its bound an offer waits"
    sink.gate.set()
    third.join(5)
    assert not third.is_alive()
    assert writer.drain(5)
    assert rows(sink, LINES) == {A: 3}


def test_who_leaves_waits_for_no_room_and_nothing_passes_what_was_left(
    slow: tuple[Slow, SinkWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_writer, "MAX_BACKLOG_BYTES", 1)
    sink, writer = slow
    writer.offer({LINES.name: changes(LINES, (A, 1, 1))}, frontier(1), {})
    assert sink.entered.wait(5)
    writer.offer({LINES.name: changes(LINES, (A, 2, 1))}, frontier(2), {})
    third = threading.Thread(target=writer.offer, args=({LINES.name: changes(LINES, (A, 3, 1))}, frontier(3), {}))
    third.start()
    writer.leave()
    third.join(5)
    assert not third.is_alive(), "who leaves waits no more"
    sink.gate.set()
    assert writer.drain(5)
    writer.offer({LINES.name: changes(LINES, (B, 4, 1))}, frontier(4), {})
    assert writer.drain(5)
    assert rows(sink, LINES) == {A: 2}
    assert sink.store.frontier == frontier(2), "a later epoch would hide the one that was left"


def test_a_failure_of_the_thread_is_raised_where_the_loop_looks() -> None:
    sink = MemorySink()
    writer = opened(sink, LINES, threaded=True)
    sink.fail_next = "before"
    writer.offer({LINES.name: changes(LINES, (A, 1, 1))}, frontier(1), {})
    wait(lambda: writer._failure is not None, "the write failed")
    with pytest.raises(SinkError, match="cannot be reached"):
        writer.check()
    with pytest.raises(SinkError):
        writer.offer({}, frontier(2), {})
    with pytest.raises(SinkError):
        writer.drain(1)
    writer.close()
    assert not rows(sink, LINES)


def test_whatever_ends_the_thread_is_raised_where_the_loop_looks() -> None:
    """Found by a soak: an error in what is told of a write ended the thread in silence, and its sink stood still for ever."""
    writer = opened(MemorySink(), LINES, threaded=True)

    def told(*_: object) -> None:
        raise ZeroDivisionError

    writer.on_written(told)
    writer.offer({LINES.name: changes(LINES, (A, 1, 1))}, frontier(1), {})
    assert writer._thread is not None
    writer._thread.join(10)
    assert not writer._thread.is_alive()
    with pytest.raises(ZeroDivisionError):
        writer.check()
    with pytest.raises(ZeroDivisionError):
        writer.drain(1)
    writer.close()


def test_what_is_taken_from_a_sink_at_the_moment_of_its_write_ends_no_thread() -> None:
    """Who offers has waited long enough just when the thread has seen that something waits, and has not taken it yet."""
    sink = MemorySink()
    writer = SinkWriter(sink)
    writer.open([LINES])
    write, taken = writer._write_once, threading.Event()

    def late() -> None:
        if not taken.is_set():
            taken.set()
            with writer._changed:
                writer._detach(SinkAway("the sink is slower than its sources", sink=sink.name), lost=True)
        write()

    writer._write_once = late  # type: ignore[method-assign]
    writer.start(0)
    writer.offer({LINES.name: changes(LINES, (A, 1, 1))}, frontier(1), {})
    assert taken.wait(10)
    with writer._changed:
        assert writer._changed.wait_for(lambda: writer._returned is not None, 20), "it is opened again"
    back = writer.check()
    assert back is not None
    assert back.lost
    writer.resume()
    writer.offer({LINES.name: whole(LINES, 1, A)}, frontier(1), {})
    assert writer.drain(10)
    assert rows(sink, LINES) == {A: 1}
    writer.close()


def test_a_failure_without_a_thread_is_raised_at_once() -> None:
    sink = MemorySink()
    writer = opened(sink, LINES)
    sink.fail_next = "before"
    with pytest.raises(SinkError, match="cannot be reached"):
        writer.offer({}, frontier(1), {})
    assert writer.epoch == 0


def test_a_sink_is_told_of_an_error_once_and_when_it_changes() -> None:
    sink = MemorySink()
    writer = opened(sink, LINES, PRICES)
    fine = {LINES.name: "", PRICES.name: ""}
    writer.offer({}, frontier(1), {}, {**fine, PRICES.name: "overflow"})
    writer.offer({}, frontier(1), {}, {**fine, PRICES.name: "overflow"})
    assert sink.writes == 1
    writer.offer({}, frontier(1), {}, {**fine, PRICES.name: "division by zero"})
    assert sink.store.errors == {PRICES.name: ("division by zero", None)}
    writer.offer({}, frontier(2), {}, fine)
    assert sink.store.errors == {}
    assert sink.writes == 3


def test_a_mark_that_an_earlier_run_left_is_taken_away() -> None:
    sink = MemorySink()
    opened(sink, PRICES).offer({}, frontier(1), {}, {PRICES.name: "overflow"})
    opened(sink, PRICES, epoch=1).offer({}, frontier(2), {}, {PRICES.name: ""})
    assert sink.store.errors == {}


class Loop:
    """A runtime's way from outputs to one sink, without sources."""

    def __init__(self, *views: SinkView) -> None:
        self.sink = MemorySink()
        self.outputs = {v.name: Scripted(v) for v in views}
        self.states = [ViewState(v, cast(Output, self.outputs[v.name]), ("memory",)) for v in views]
        self.writer = opened(self.sink, *views)
        nothing: Any = None
        parts = RuntimeComponents(
            name="test",
            intakes=[],
            reclock=cast(Reclock, SimpleNamespace(replaying=None)),
            log_size=nothing,
            forget=nothing,
            flow=nothing,
            tables={},
            views=self.states,
            writers=[self.writer],
            store=nothing,
            metrics=Metrics(),
            executor=nothing,
            fingerprints={},
            checkpoint_seconds=1.0,
            program="test",
            generation=1,
        )
        self.runtime = Runtime(parts, {}, 0)

    def step(self, epoch: int) -> None:
        self.runtime.epoch = epoch
        self.runtime._emit([], [(epoch, cast(Transaction, None))])


def test_a_view_in_error_leaves_and_comes_back_whole() -> None:
    loop = Loop(LINES, PRICES)
    prices, lines = loop.outputs[PRICES.name], loop.outputs[LINES.name]
    prices.rows, lines.rows = [(A, 1, 1)], [(A, 1, 1)]
    loop.step(1)
    prices.rows, prices.errors = [(B, 2, 1)], [("overflow", 2, 1), ("division by zero", 2, 1)]
    lines.rows = [(B, 2, 1)]
    loop.step(2)
    store = loop.sink.store
    assert store.errors == {PRICES.name: ("division by zero", 1)}, "its rows are those of epoch 1"
    assert rows(loop.sink, PRICES) == {A: 1}
    assert rows(loop.sink, LINES) == {A: 1, B: 1}, "the others go on"
    assert loop.states[1].frontier == 1
    prices.errors = [("division by zero", 3, -1)]
    loop.step(3)
    assert store.errors == {PRICES.name: ("overflow", 1)}
    prices.rows, prices.errors, prices.content = [(C, 4, 1)], [("overflow", 4, -1)], [B, C]
    loop.step(4)
    assert store.errors == {}
    assert rows(loop.sink, PRICES) == {B: 1, C: 1}, "given whole: what it missed is there"
    assert loop.states[1].frontier == 4
    prices.rows = [(A, 5, 1)]
    loop.step(5)
    assert rows(loop.sink, PRICES) == {A: 1, B: 1, C: 1}


def test_a_view_that_turns_out_to_be_in_error_when_it_is_to_be_given_whole_is_marked() -> None:
    loop = Loop(PRICES)
    prices = loop.outputs[PRICES.name]
    prices.rows = [(A, 1, 1)]
    loop.step(1)
    prices.errors = [("overflow", 2, 1), ("overflow", 2, -1)]
    prices.failing = [("does not fit", 2, 1)]
    loop.runtime.whole["memory"] = {PRICES.name}
    loop.step(2)
    assert loop.sink.store.errors == {PRICES.name: ("does not fit", 1)}
    assert rows(loop.sink, PRICES) == {A: 1}
    assert loop.runtime.whole["memory"] == {PRICES.name}


def test_an_error_that_is_repeated_and_mended_below_the_sinks_frontier_writes_nothing() -> None:
    loop = Loop(PRICES)
    loop.writer.offer({PRICES.name: changes(PRICES, (A, 9, 1))}, frontier(9), {})
    prices = loop.outputs[PRICES.name]
    prices.errors = [("overflow", 3, 1)]
    loop.step(3)
    prices.errors = [("overflow", 5, -1)]
    loop.step(5)
    assert loop.sink.writes == 1
    prices.content = [A]
    loop.step(9)
    assert rows(loop.sink, PRICES) == {A: 1}
    assert loop.sink.store.errors == {}
    loop.step(10)
    assert loop.sink.store.frontier is not None
    assert loop.sink.store.frontier.epoch == 10


@pytest.mark.parametrize("restored", [True, False])
def test_a_sink_that_was_set_back_before_its_views_change_lacks_all_of_them(restored: bool) -> None:
    """Simulator, seed 400550: it got the new ones alone, at the newest epoch, and kept old rows of the others for good."""
    sink = MemorySink()
    writer = SinkWriter(sink, threaded=False)
    writer.open([LINES])
    writer.start(0)
    writer.offer({"lines": whole(LINES, 1, A)}, frontier(1), {})
    older = (sink.store.frontier, Counter(rows(sink, LINES)))
    writer.offer({"lines": changes(LINES, (B, 2, 1))}, frontier(2), {})
    if restored:
        sink.store.frontier, sink.store.rows["lines"] = older
    state = writer.change([LINES, PRICES])
    assert state is not None
    assert state.missing == ({"lines", "prices"} if restored else {"prices"})
    writer.offer({"lines": whole(LINES, 2, A, B), "prices": whole(PRICES, 2, C)}, frontier(2), {})
    assert rows(sink, LINES) == Counter([A, B])
    assert sink.store.frontier is not None
    assert sink.store.frontier.incarnation == 1 + restored
