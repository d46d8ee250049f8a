"""The sink contract on the sink in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from headrace.connectors.sink import Sink, SinkError, SinkState, SinkView
from tests.contracts.sink import LINES, SinkContract, SinkHarness, Texts, changes, frontier, texts, whole
from tests.doubles.memory import MemorySink, MemoryStore


class MemoryHarness:
    def __init__(self) -> None:
        self.store = MemoryStore()

    def make(self) -> MemorySink:
        return MemorySink("group", self.store)

    def content(self, view: SinkView) -> Counter[Texts]:
        found: Counter[Texts] = Counter()
        for row, count in self.store.rows[view.name].items():
            [image] = texts(view, row)
            found[image] += count
        return found

    def together(self, views: Sequence[SinkView]) -> list[Counter[Texts]]:
        return [self.content(view) for view in views]

    def marks(self) -> dict[str, tuple[str, int | None]]:
        return dict(self.store.errors)

    @contextmanager
    def lose_answer(self, sink: Sink) -> Iterator[None]:
        assert isinstance(sink, MemorySink)
        sink.fail_next = "after"
        yield

    @contextmanager
    def lose_request(self, sink: Sink) -> Iterator[None]:
        assert isinstance(sink, MemorySink)
        yield  # there is no session to lose: a failure before is the caller's to see (below)

    @contextmanager
    def lose_claim(self, sink: Sink, happens: bool) -> Iterator[None]:
        opening = sink.open

        def opened(views: Sequence[SinkView], held: int | None = None) -> SinkState:
            if happens:
                opening(views, held)
            raise SinkError("the answer was lost")

        sink.open = opened
        yield
        sink.open = opening


class TestMemorySink(SinkContract):
    @pytest.fixture
    def harness(self) -> SinkHarness:
        return MemoryHarness()


def test_a_failure_on_demand_leaves_nothing() -> None:
    harness = MemoryHarness()
    sink = harness.make()
    sink.open([LINES])
    sink.write({LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
    sink.fail_next = "before"
    with pytest.raises(SinkError, match="cannot be reached"):
        sink.write({LINES.name: changes(LINES, (("b", 1), 2, 1))}, frontier(2))
    assert harness.content(LINES) == texts(LINES, ("a", 1))
    assert harness.make().open([LINES]).frontier == frontier(1)
