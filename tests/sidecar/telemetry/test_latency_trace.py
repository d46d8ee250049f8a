"""What an epoch took at each stage is told to sinks on their threads while the loop adds and forgets others."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from headrace.connectors.commit_place import Lsn
from headrace.connectors.sink import EpochStamp
from headrace.sidecar.telemetry.latency_trace import MANY, LatencyTrace, StageTimes
from headrace.sidecar.telemetry.metrics import LatencyStages


def test_the_loop_may_forget_stages_while_a_sink_asks_for_them() -> None:
    """Found by a soak: a sink's thread ended with "dictionary changed size during iteration", and its sink stood still."""
    trace = LatencyTrace()
    for epoch in range(1, 6):
        trace.took(epoch, StageTimes(1.0, 1.5, 2.0, 3.0, 4.0))
    with ThreadPoolExecutor(1) as loop:

        class Interrupted(list[StageTimes]):
            def __getitem__(self, at: Any) -> Any:
                added.append(loop.submit(trace.forget, 3000))
                wait(added, 0.2)
                return super().__getitem__(at)

        added: list[Future[None]] = []
        trace._times = Interrupted(trace._times)
        assert trace.stages({5: EpochStamp("shop", Lsn(1), 500_000)}, 9.0, 2.0) == [
            LatencyStages(0.5, 1.0, 1.0, 1.0, 5.0, kafka_queueing=0.5, sink_queueing=3.0)
        ]
        added[0].result(10)
    trace._times = list(trace._times)
    trace.took(6, StageTimes(5.0, 5.0, 6.0, 7.0, 8.0))
    assert trace.stages({6: EpochStamp("shop", Lsn(1), 500_000)}, 9.0, 1.0) == [
        LatencyStages(4.5, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0)
    ]


def test_each_epoch_goes_with_the_run_that_it_is_of() -> None:
    trace = LatencyTrace()
    for last in (3, 7, 8):
        trace.took(last, StageTimes(last, last, last + 1.0, last + 2.0, last + 3.0))
    stamps = {e: EpochStamp("shop", Lsn(e), 1_000_000) for e in (1, 3, 4, 7, 8, 9)} | {6: EpochStamp("shop", Lsn(6), 0)}
    found = trace.stages(stamps, 20.0, 1.0)
    assert [stage.debezium for stage in found] == [2.0, 2.0, 6.0, 6.0, 7.0], (
        "of 9 nothing is known, of 6 not when it was committed"
    )
    for epoch in range(9, 9 + MANY):
        trace.took(epoch, StageTimes(1.0, 1.0, 1.0, 1.0, 1.0))
    trace.forget(8)
    assert trace.stages({8: EpochStamp("shop", Lsn(1), 1)}, 20.0, 1.0) == trace.stages(
        {9: EpochStamp("shop", Lsn(1), 1)}, 20.0, 1.0
    )
