"""What a worker tells the driver of what it has read: every lane of the events and none of their values, marks, positions.

Invariant: `answered(parts, kept)` gives what `answer_out` was given, but with references in place of rows. Lanes of one
value go as that value. Workers send answers, the driver's source takes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from headrace.connectors.changes import (
    Decoded,
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
from headrace.engine.batch.exchange_codec import Message
from headrace.engine.batch.updates import Int64s
from headrace.sidecar.transactions.references import KeptRuns, referring

Places = dict[str, dict[int, int]]
_WIDE = ("offsets", "transactions", "orders", "lsns", "timestamps", "attempts", "read_ms", "sent_ms")
_NARROW = ("kinds", "snapshot")
_FLAGS = ("metadata", "moved")


class _Changes(msgspec.Struct, array_like=True):
    """A run of one table. `lanes`: of each lane its one value; None where a buffer follows; absent lanes are not in it."""

    table: str
    number: int
    size: int
    lanes: dict[str, int | None]


class _Marks(msgspec.Struct, array_like=True):
    """Of one topic, which has marks of one kind; signs of life are none that the driver needs."""

    transactions: list[TransactionMark] = []
    snapshots: list[SnapshotNotification] = []
    versions: list[VersionEnd] = []
    beats: list[HeartbeatRow] = []


class RunHead(msgspec.Struct, array_like=True):
    """What a run of messages became, but for the lanes of its events."""

    topic: str
    partition: int
    events: int
    newest_ms: int
    seconds: float
    changes: list[_Changes]
    marks: _Marks
    undecodable: list[Undecodable]
    unfit: list[Undecodable]
    lost: list[MissingColumn]
    letters: list[tuple[int, bytes | None, bytes | None]]


class Standing(msgspec.Struct, array_like=True):
    """Where a worker stands; of what did not change since its last answer, nothing. `looked`: questions about a topic's end that
    are answered by now. `failed`: an error of its source, as JSON has it."""

    positions: Places = {}
    ends: Places = {}
    ids: dict[str, str] = {}
    others: list[str] | None = None
    left_out: dict[str, dict[str, str]] | None = None
    at_end: bool = False
    silent: float = 0.0
    looked: list[int] = []
    failed: dict[str, object] | None = None


class _Answer(msgspec.Struct, array_like=True):
    runs: list[RunHead]
    standing: Standing


@dataclass(frozen=True, kw_only=True)
class DecodedRun(MessageBatch):
    """A run that a worker has decoded: the messages are those alone that could not be. `unfit`: records that do not fit their
    table; `events`, `newest_ms`: of all the run; `seconds`: that decoding it took."""

    decoded: Decoded
    events: int
    newest_ms: int
    seconds: float
    unfit: list[Undecodable] = field(default_factory=list)


def run_out(
    run: MessageBatch,
    decoded: Decoded,
    kept: Sequence[tuple[int, Int64s, Int64s]],
    unfit: list[Undecodable],
    seconds: float,
) -> tuple[RunHead, Message]:
    """A run, and its lanes. `kept`: of each table's changes the number by which its rows are kept, and their keys' identities."""
    buffers: list[np.ndarray] = []
    changes = []
    for table, (number, hashes, checks) in zip(decoded.changes, kept, strict=True):
        lanes: dict[str, int | None] = {}
        named = {n: lane for n in (*_WIDE, *_NARROW, *_FLAGS) if (lane := getattr(table, n)) is not None}
        if table.moved is not None and not table.moved.any():
            del named["moved"]
        for name, lane in (named | {"hashes": hashes, "checks": checks}).items():
            first = int(lane[0])
            if bool((lane == lane[0]).all()):
                lanes[name] = first
            else:
                lanes[name] = None
                buffers.append(np.ascontiguousarray(lane))
        changes.append(_Changes(table.table, number, len(table), lanes))
    marks = _Marks(
        # of a BEGIN nobody needs more than when the END behind it was sent
        [m for m in decoded.marks if isinstance(m, TransactionMark) and m.status == "END"],
        [m for m in decoded.marks if isinstance(m, SnapshotNotification)],
        [m for m in decoded.marks if isinstance(m, VersionEnd)],
        [m for m in decoded.marks if isinstance(m, HeartbeatRow)],
    )
    bad = {record.offset for record in decoded.undecodable}
    letters = [
        (offset, run.keys[at], run.values[at]) for at, offset in enumerate(run.offsets.tolist()) if offset in bad
    ] if bad else []  # fmt: skip
    newest = int(run.timestamps[-1]) if len(run) else 0
    out = RunHead(
        run.topic,
        run.partition,
        len(run),
        newest,
        seconds,
        changes,
        marks,
        decoded.undecodable,
        unfit,
        decoded.lost,
        letters,
    )
    return out, buffers


_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(_Answer).decode


def answer_out(runs: Sequence[tuple[RunHead, Message]], standing: Standing) -> list[Message]:
    """The parts of an answer."""
    text = _ENCODE(_Answer([run for run, _ in runs], standing))
    return [[text], [buffer for _, buffers in runs for buffer in buffers]]


def answered(parts: Sequence[Message], kept: KeptRuns) -> tuple[list[DecodedRun], Standing]:
    """The runs of an answer, and where its worker stands. `kept`: the runs that are referred to, of which these become part."""
    answer = _DECODE(bytes(parts[0][0]))
    buffers = iter(parts[1])
    out = []
    for run in answer.runs:
        changes = [_changes_in(run, one, buffers, kept) for one in run.changes]
        marks = run.marks
        every: list[Mark] = [*marks.transactions, *marks.snapshots, *marks.versions, *marks.beats]
        decoded = Decoded(changes, every, run.undecodable, {}, run.lost)
        offsets = np.array([offset for offset, _, _ in run.letters], np.int64)
        out.append(DecodedRun(
            run.topic, run.partition, offsets, [key for _, key, _ in run.letters], [value for _, _, value in run.letters],
            np.full(len(offsets), run.newest_ms), decoded=decoded, events=run.events, newest_ms=run.newest_ms,
            seconds=run.seconds, unfit=run.unfit,
        ))  # fmt: skip
    return out, answer.standing


def _changes_in(run: RunHead, one: _Changes, buffers: Iterator[Any], kept: KeptRuns) -> TableChanges:
    lanes: dict[str, Any] = {}
    for name, value in one.lanes.items():
        kind = np.uint8 if name in _NARROW else np.bool_ if name in _FLAGS else np.int64
        if value is None:
            lanes[name] = np.frombuffer(next(buffers), kind)
        else:
            lanes[name] = np.full(one.size, value, kind)
    rows = referring(one.number, one.size, lanes.pop("hashes"), lanes.pop("checks"))
    return TableChanges(one.table, run.topic, run.partition, rows, kept=kept.refer(one.number), **lanes)
