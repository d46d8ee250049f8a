"""The walks of epochs are told to sinks on their threads while the loop adds and forgets others."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from connectors.sink import EpochStamp
from sidecar.metrics import Legs
from sidecar.walks import MANY, Walk, Walks


def test_the_loop_may_forget_walks_while_a_sink_asks_for_them() -> None:
    """Found by a soak: a sink's thread ended with "dictionary changed size during iteration", and its sink stood still."""
    walks = Walks()
    for epoch in range(1, 6):
        walks.took(epoch, Walk(1.0, 2.0, 3.0, 4.0))
    with ThreadPoolExecutor(1) as loop:

        class Interrupted(list[Walk]):
            def __getitem__(self, at: Any) -> Any:
                added.append(loop.submit(walks.forget, 3000))
                wait(added, 0.2)
                return super().__getitem__(at)

        added: list[Future[None]] = []
        walks._walks = Interrupted(walks._walks)
        assert walks.legs({5: EpochStamp("shop", 1, 500_000)}, 9.0) == [Legs(0.5, 1.0, 1.0, 1.0, 5.0)]
        added[0].result(10)
    walks._walks = list(walks._walks)
    walks.took(6, Walk(5.0, 6.0, 7.0, 8.0))
    assert walks.legs({6: EpochStamp("shop", 1, 500_000)}, 9.0) == [Legs(4.5, 1.0, 1.0, 1.0, 1.0)]


def test_each_epoch_walks_with_the_run_that_it_is_of() -> None:
    walks = Walks()
    for last in (3, 7, 8):
        walks.took(last, Walk(last, last + 1.0, last + 2.0, last + 3.0))
    stamps = {e: EpochStamp("shop", e, 1_000_000) for e in (1, 3, 4, 7, 8, 9)} | {6: EpochStamp("shop", 6, 0)}
    found = walks.legs(stamps, 20.0)
    assert [leg.debezium for leg in found] == [2.0, 2.0, 6.0, 6.0, 7.0], (
        "of 9 nothing is known, of 6 not when it was committed"
    )
    for epoch in range(9, 9 + MANY):
        walks.took(epoch, Walk(1.0, 1.0, 1.0, 1.0))
    walks.forget(8)
    assert walks.legs({8: EpochStamp("shop", 1, 1)}, 20.0) == walks.legs({9: EpochStamp("shop", 1, 1)}, 20.0)
