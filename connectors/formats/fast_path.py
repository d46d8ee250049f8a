"""The typed path: messages of one plan → `TableChanges`, parsed into no more than the fields that are needed.

Always: it means the same as the row path, as the same decoders make the columns. Every doubt (a missing field, another
table, a truncate, a number where only one parser keeps every digit, any error) raises, and the caller takes the row path
for the same messages. Pure; called by the envelope decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import astuple

from headrace.connectors.changes import MessageBatch, TableChanges, lanes
from headrace.connectors.formats.row_path import DATA_ERRORS, SNAPSHOTS, batch, moved
from headrace.connectors.formats.table_decoders import Plan
from headrace.connectors.formats.table_specs import CannotDecode
from headrace.engine.batch.updates import DELETE, INSERT, UPSERT, Bools, Int64s, UInt8s

CHUNK: Final = 256
"""Messages parsed at a time: few enough for their objects to stay in the cache until they are columns."""

DOUBTS: Final = (*DATA_ERRORS, msgspec.MsgspecError)
"""What `read` raises where the row path must decide."""


class Doubt(CannotDecode):
    """The row path must decide."""


class _Source(msgspec.Struct, gc=False):
    """What Debezium says of an event's origin."""

    schema: str
    table: str
    txid: int = msgspec.field(name="txId")
    lsn: int
    ts_us: int
    snapshot: str | None


class _Version(msgspec.Struct, gc=False):
    """What our Spark publisher says of it; `attempt` stands where Debezium's has its LSN."""

    schema: str
    table: str
    txid: int = msgspec.field(name="txId")
    attempt: int
    ts_us: int
    snapshot: str


class _Block(msgspec.Struct, gc=False):
    """An event's place in its transaction."""

    total_order: int


class _Read(msgspec.Struct, gc=False):
    """When the connector read a row."""

    ts_ms: int = -1


_READ: Final = msgspec.json.Decoder(_Read).decode
_STREAMED: Final = frozenset((None, "false"))
"""source.snapshot of an event of the stream: Debezium writes null since 3.6."""


@dataclass(frozen=True, eq=False)
class Reader:
    """How messages of one plan are parsed. `versions`: they are our Spark publisher's."""

    plan: Plan
    parse: Callable[[bytes], Any]
    versions: bool


def reader(plan: Plan, versions: bool) -> Reader | None:
    """The reader of a plan, or None where some column of it needs the row path."""
    if plan.refusal is not None or not plan.schema.columns or not all(d.alike for d in plan.decoders):
        return None
    names = zip(plan.sent, plan.schema.names, strict=True)
    row = _struct("Row", [(sent, name not in plan.absent_is_null) for sent, name in names])
    key = _struct("Key", [(n, False) for n in plan.key or ()])
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("op", str), ("source", _Version if versions else _Source), ("after", row | None, None),
        ("before", key | None if plan.key else msgspec.Raw, None),
        ("transaction", msgspec.Raw if versions else _Block | None, None),
    ]  # fmt: skip
    event = msgspec.defstruct("Event", fields, gc=False)
    return Reader(plan, msgspec.json.Decoder(event).decode, versions)


def _struct(name: str, columns: Sequence[tuple[str, bool]]) -> Any:
    """A struct of columns by name, in their order; those not needed are None where they are missing."""
    fields = [(f"c{i}", Any) if needed else (f"c{i}", Any, None) for i, (_, needed) in enumerate(columns)]
    names = {f"c{i}": column for i, (column, _) in enumerate(columns)}
    return msgspec.defstruct(name, fields, rename=names, gc=False, kw_only=True)


def read(
    reader_: Reader, messages: MessageBatch, positions: Sequence[int], payloads: Sequence[bytes], route: tuple[str, str]
) -> TableChanges:
    """The changes of `payloads`, which stand at `positions` of `messages`, all of `route`. Raises one of DOUBTS."""
    whole = b"".join(payloads)
    if not whole.isascii():
        # what is not needed is not looked at by the parser
        whole.decode()
    parts = [_parsed(reader_, payloads[at : at + CHUNK]) for at in range(0, len(payloads), CHUNK)]
    lists = parts[0]
    if len(parts) > 1:
        lists = [list(chain.from_iterable(lane)) for lane in zip(*parts, strict=True)]
    ops, schemas, tables, txids, middles, stamps, snapshots, places, *columns = lists
    if (set(schemas), set(tables)) != ({route[0]}, {route[1]}):
        raise Doubt("several tables")
    plan, versions, count = reader_.plan, reader_.versions, len(payloads)
    offsets = messages.offsets
    if len(offsets) != count:
        offsets = offsets[np.array(positions, np.int64)]
    rows, unchanged = batch(plan, columns)
    lane, orders, metadata = np.array(middles, np.int64), *_orders(places)
    snapshot = _snapshot(snapshots)
    if (snapshot == 2).any():
        raise Doubt("an incremental snapshot")
    initial = (snapshot == 1).any()
    return TableChanges(
        plan.table, messages.topic, messages.partition, rows, _kinds(plan, ops), offsets, np.array(txids, np.int64),
        orders, lanes(count, -1) if versions else lane, np.array(stamps, np.int64), snapshot, metadata,
        lane if versions else lanes(count), unchanged,
        moved(unchanged, np.array([op == "c" for op in ops])) if unchanged else None,
        np.array([_READ(payload).ts_ms for payload in payloads], np.int64) if initial else None,
    )  # fmt: skip


def _parsed(reader_: Reader, payloads: Sequence[bytes]) -> list[Sequence[Any]]:
    """A list each of: operations, the source's fields, orders (None where there is no transaction), and every column."""
    parsed = tuple(map(astuple, map(reader_.parse, payloads)))  # first: see `build`
    ops, sources, afters, befores, blocks = zip(*parsed, strict=True)
    images: Iterable[tuple[Any, ...]] = map(astuple, afters)
    if "d" in ops:
        pairs = zip(ops, afters, befores, strict=True)
        images = [_deleted(reader_.plan, before) if op == "d" else astuple(after) for op, after, before in pairs]
    if reader_.versions or not any(blocks):
        places: Sequence[Any] = (None,) * len(ops)
    else:
        places = [None if block is None else block.total_order for block in blocks]
    return [ops, *zip(*tuple(map(astuple, sources)), strict=True), places, *zip(*tuple(images), strict=True)]


def _deleted(plan: Plan, before: Any) -> tuple[Any, ...]:
    """The image of a deleted row: its key alone."""
    key, image = plan.schema.key or (), [None] * len(plan.schema.columns)
    for at, value in zip(key, astuple(before), strict=True):
        if value is None:
            raise Doubt("a key without a value")
        image[at] = value
    return tuple(image)


def _kinds(plan: Plan, ops: Sequence[str]) -> UInt8s:
    found = set(ops)
    keyed = plan.schema.key is not None
    if not found <= ({"c", "r", "u", "d"} if keyed else {"c", "r"}):
        raise Doubt("an operation for the row path")
    if "d" not in found:
        return np.full(len(ops), UPSERT if keyed else INSERT, np.uint8)
    return np.array([DELETE if op == "d" else UPSERT for op in ops], np.uint8)


def _orders(places: Sequence[int | None]) -> tuple[Int64s, Bools]:
    """(total_order or -1, whether there is a transaction)."""
    if None not in places:
        return np.array(places, np.int64), np.ones(len(places), np.bool_)
    missing = np.array([place is None for place in places])
    return np.array([-1 if place is None else place for place in places], np.int64), ~missing


def _snapshot(states: Sequence[str | None]) -> UInt8s:
    if set(states) <= _STREAMED:
        return np.zeros(len(states), np.uint8)
    return np.array([SNAPSHOTS[state] for state in states], np.uint8)
