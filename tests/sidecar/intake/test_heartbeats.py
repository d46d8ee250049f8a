"""The chain of heartbeats: repetitions pass, whatever is missing is named, and a checkpoint keeps where it stands."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from headrace.connectors.changes import HeartbeatRow, MessageBatch
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.connectors.formats.table_specs import TableSpec
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.intake.heartbeats import HeartbeatChain
from headrace.sidecar.transactions.model import ContinuityError

TOPIC = "p.headrace.heartbeat"


def beat(
    number: int, *, kind: str = "u", after: int | None = -1, row: str = "p", lsn: int | None = None
) -> HeartbeatRow:
    """One that says that it follows on the beat before it, on `after`, or (None) does not say."""
    before = None if after is None or kind != "u" else stood(number - 1 if after == -1 else after)
    now = None if kind in "dt" else stood(number)
    return HeartbeatRow(kind, row, now, before, 10 * number if lsn is None else lsn, TOPIC, 0, number)


def stood(number: int) -> tuple[int, str]:
    return number, f"at {number}"


@pytest.mark.parametrize("says", [-1, None], ids=["full identity", "default identity"])
def test_a_chain_and_its_repetitions_pass(says: int | None) -> None:
    beats = HeartbeatChain("s")
    for number in (3, 4, 5, 4, 5, 3, 6):
        beats.met(beat(number, after=says))
    assert beats.last == {"p": (*stood(6), 60)}


@pytest.mark.parametrize(
    "wrong",
    [
        beat(8), beat(8, after=None), beat(6, lsn=80, after=4), beat(4, lsn=80), beat(4, lsn=80, after=None),
        beat(6, after=4, lsn=80),
    ],
    ids=["a gap", "a gap, untold", "the same number by chance", "gone back", "gone back, untold", "another past"],
)  # fmt: skip
def test_what_does_not_follow_on_is_named(wrong: HeartbeatRow) -> None:
    beats = HeartbeatChain("shop")
    for number in (4, 5):
        beats.met(beat(number))
    with pytest.raises(ContinuityError, match="heartbeats do not follow") as caught:
        beats.met(wrong)
    assert caught.value.where["source"] == "shop"
    assert caught.value.where["offset"] == wrong.offset
    assert beats.last == {"p": (*stood(5), 50)}, "who reads it again finds the same"
    with pytest.raises(ContinuityError):
        beats.met(wrong)


def test_a_snapshot_and_rows_made_anew_begin_again_and_rows_are_apart() -> None:
    beats = HeartbeatChain("s")
    for one in (
        beat(4), beat(5), beat(40, kind="r"), beat(41), beat(42, kind="d"), beat(1, kind="c", lsn=430), beat(2, lsn=440),
        beat(7, row="q", lsn=445), beat(8, row="q", lsn=450), beat(9, kind="t", lsn=460), beat(3, lsn=470, after=9),
    ):  # fmt: skip
        beats.met(one)
    assert beats.last == {"p": (*stood(3), 470)}


def test_a_checkpoint_keeps_it_and_one_from_before_checks_what_follows_alone() -> None:
    beats = HeartbeatChain("s")
    beats.met(beat(4))
    again = HeartbeatChain("s")
    again.restore(json.loads(json.dumps(beats.json())), 1000)
    with pytest.raises(ContinuityError):
        again.met(beat(6))
    old = HeartbeatChain("s")
    old.restore((), 100)
    for number in (4, 9):
        old.met(beat(number))
    old.met(beat(10))
    with pytest.raises(ContinuityError):
        old.met(beat(13))


@pytest.mark.parametrize("declared", [False, True])
def test_records_of_the_heartbeat_table_are_beats_unless_it_is_declared(declared: bool) -> None:
    schema = Schema.of([Column("id", DataType.parse("integer"), nullable=False)], ["id"])
    names = ["public.t", *(["headrace.heartbeat"] if declared else [])]
    form = DebeziumFormat("s", "p", {n: TableSpec(n, schema) for n in names}, beats="headrace.heartbeat")
    where = {"schema": "headrace", "table": "heartbeat", "lsn": 50, "txId": 7, "ts_ms": 1}

    def image(number: int) -> dict[str, Any]:
        return {"source": "p", "beat": number, "at": f"at {number}"}

    bodies: list[dict[str, Any] | None] = [
        {"op": "u", "before": image(4), "after": image(5), "source": where}, None,
        {"op": "d", "before": {"source": "p", "beat": None, "at": None}, "after": None, "source": where},
        {"op": "t", "before": None, "after": None, "source": where},
        {"op": "c", "before": None, "after": {"other": 1}, "source": where},
    ]  # fmt: skip
    values = [None if body is None else json.dumps(body).encode() for body in bodies]
    count = len(values)
    run = MessageBatch(TOPIC, 0, np.arange(count), [None] * count, values, np.zeros(count, np.int64))
    assert form.wants(TOPIC)
    if declared:
        assert not form.decode(run).marks
        return
    assert form.decode(run).marks == [
        HeartbeatRow("u", "p", stood(5), stood(4), 50, TOPIC, 0, 0), HeartbeatRow("d", "p", None, None, 50, TOPIC, 0, 2),
        HeartbeatRow("t", "", None, None, 50, TOPIC, 0, 3),
    ]  # fmt: skip
