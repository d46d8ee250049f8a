"""The columnar path: many payloads of one plan → `TableChanges` without a Python object a row.

Arrow's JSON reader takes exactly the fields that are needed, in their lanes. It is only trusted where it means the same
as the row path: every doubt (a missing field, another table, a truncate, an infinity, any error) raises, and the caller
takes the row path for the same messages. Pure.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from connectors.changes import Messages, TableChanges, lanes
from connectors.formats.plans import Plan
from connectors.formats.rows import SNAPSHOTS, moved
from connectors.formats.tables import CannotDecode
from engine.batch.updates import DELETE, INSERT, UPSERT, Bools, Int64s, UInt8s

MANY: Final = 64
"""From so many rows on, the reader's fixed cost is worth paying."""

_NEWLINE: Final = ord("\n")

_ENVELOPE_NAMES: Final = frozenset((
    "before", "after", "op", "source", "transaction", "ts_ms", "ts_us", "ts_ns", "schema", "table", "db", "name",
    "snapshot", "sequence", "txId", "lsn", "xmin", "origin", "origin_lsn", "version", "connector", "attempt", "id",
    "total_order", "data_collection_order",
))  # fmt: skip
"""A column of such a name cannot be told from the envelope's own field when its null is looked for."""


class Doubt(CannotDecode):
    """The row path must decide."""


@dataclass(frozen=True, eq=False)
class Reader:
    """What Arrow is told to read for one plan. `nulls`: by position, how a null of the column is written."""

    plan: Plan
    schema: pa.Schema
    nulls: tuple[bytes, ...]
    placeholders: tuple[bytes, ...]
    versions: bool


def reader(plan: Plan, versions: bool) -> Reader | None:
    """The reader of a plan, or None where some column of it needs the row path."""
    columns = plan.schema.columns
    if plan.refusal is not None or not columns or plan.absent_is_null:
        return None
    reads = [decoder.read for decoder in plan.decoders]
    if any(read is None for read in reads):
        return None
    row = pa.struct([pa.field(c.name, read) for c, read in zip(columns, reads, strict=True)])
    source = [("schema", pa.string()), ("table", pa.string()), ("txId", pa.int64()), ("ts_us", pa.int64())]
    source += [("attempt", pa.int64())] if versions else [("lsn", pa.int64()), ("snapshot", pa.string())]
    before = pa.struct([row.field(i) for i in plan.schema.key or (0,)])
    fields = [("op", pa.string()), ("after", row), ("before", before), ("source", pa.struct(source))]
    if not versions:
        fields.append(("transaction", pa.struct([("id", pa.string()), ("total_order", pa.int64())])))
    texts = {value for _, unsent in plan.toastable for value in unsent if isinstance(value, str)}
    return Reader(
        plan,
        pa.schema(fields),
        tuple(b"" if c.name in _ENVELOPE_NAMES else orjson.dumps(c.name) + b":null" for c in columns),
        tuple(orjson.dumps(text) for text in sorted(texts)),
        versions,
    )


def read(
    reader_: Reader, messages: Messages, positions: Sequence[int], payloads: Sequence[bytes], route: tuple[str, str]
) -> TableChanges:
    """The changes of `payloads`, which stand at `positions` of `messages`, all of `route`. Raises when in doubt."""
    joined = b"\n".join(payloads)
    if np.count_nonzero(np.frombuffer(joined, np.uint8) == _NEWLINE) != len(payloads) - 1:
        raise Doubt("a line break in a message")
    # Arrow does not look at this
    joined.decode()
    table = pj.read_json(
        io.BytesIO(joined),
        pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
        pj.ParseOptions(explicit_schema=reader_.schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(payloads):
        raise Doubt("not one row a message")
    parts = {name: table.column(name).combine_chunks() for name in table.schema.names}
    source = _fields(parts["source"])
    for name, expected in zip(("schema", "table"), route, strict=True):
        if pc.unique(source[name]).to_pylist() != [expected]:
            raise Doubt("several tables")
    kinds, deletes = _kinds(reader_.plan, parts["op"])
    rows, unchanged = _rows(reader_, parts, deletes, payloads, any(p in joined for p in reader_.placeholders))
    return _changes(reader_, messages, positions, kinds, rows, unchanged, parts, source)


def _fields(struct: pa.StructArray) -> Mapping[str, pa.Array]:
    return dict(zip([field.name for field in struct.type], struct.flatten(), strict=True))


def _kinds(plan: Plan, ops: pa.Array) -> tuple[UInt8s, pa.Array | None]:
    found = set(pc.unique(ops).to_pylist())
    keyed = plan.schema.key is not None
    if not found <= ({"c", "r", "u", "d"} if keyed else {"c", "r"}):
        raise Doubt("an operation for the row path")
    kinds: UInt8s = np.full(len(ops), UPSERT if keyed else INSERT, np.uint8)
    if "d" not in found:
        return kinds, None
    deletes = pc.equal(ops, "d")
    kinds[deletes.to_numpy(zero_copy_only=False)] = DELETE
    return kinds, deletes


def _rows(
    reader_: Reader, parts: Mapping[str, Any], deletes: pa.Array | None, payloads: Sequence[bytes], unsent: bool
) -> tuple[pa.RecordBatch, dict[int, Bools]]:
    plan = reader_.plan
    after = parts["after"]
    absent = 0 if deletes is None else pc.sum(deletes).as_py()
    if after.null_count and (deletes is None or not pc.is_null(after).equals(deletes)):
        raise Doubt("a change without its row")
    before = _fields(parts["before"]) if absent else {}
    arrays: list[pa.Array] = []
    unchanged: dict[int, Bools] = {}
    for at, column in enumerate(after.flatten()):
        if deletes is not None and at in (plan.schema.key or ()):
            column = pc.if_else(deletes, before[plan.schema.names[at]], column)
            if column.null_count:
                raise Doubt("a key without a value")
        elif column.null_count > absent:
            _written_nulls(reader_.nulls[at], column, deletes, payloads)
        if unsent and plan.unsent[at]:
            mask = pc.is_in(column, pa.array([v for v in plan.unsent[at] if isinstance(v, str)], column.type))
            if pc.any(mask).as_py():
                unchanged[at] = mask.to_numpy(zero_copy_only=False)
                column = pc.if_else(mask, pa.scalar(None, column.type), column)
        arrays.append(plan.decoders[at].column(column))
    if plan.schema.key is None and unchanged:
        raise Doubt("an unchanged value in a keyless table")
    return pa.RecordBatch.from_arrays(arrays, schema=plan.schema.arrow), unchanged


def _written_nulls(null: bytes, column: pa.Array, deletes: pa.Array | None, payloads: Sequence[bytes]) -> None:
    """A null that Arrow gives must stand in the message: a missing field looks the same to it."""
    missing = column.is_null()
    if deletes is not None:
        missing = pc.and_(missing, pc.invert(deletes))
    for i in np.flatnonzero(missing.to_numpy(zero_copy_only=False)).tolist():
        if not null or null not in payloads[i]:
            raise Doubt("a field may be missing")


def _changes(
    reader_: Reader, messages: Messages, positions: Sequence[int], kinds: UInt8s, rows: pa.RecordBatch,
    unchanged: dict[int, Bools], parts: Mapping[str, Any], source: Mapping[str, pa.Array],
) -> TableChanges:  # fmt: skip
    count = len(kinds)
    offsets = messages.offsets[np.array(positions, np.int64)]
    if source["ts_us"].null_count:
        raise Doubt("a source block without ts_us")
    transactions, stamps = _lane(source["txId"]), _lane(source["ts_us"])
    if reader_.versions:
        if source["attempt"].null_count:
            raise Doubt("a record without its attempt")
        orders, metadata, lsns = lanes(count, -1), np.zeros(count, np.bool_), lanes(count, -1)
        snapshot: UInt8s = np.zeros(count, np.uint8)
        attempts = _lane(source["attempt"])
    else:
        if source["txId"].null_count:
            raise Doubt("a source block without txId")
        blocks = parts["transaction"]
        metadata = blocks.is_valid().to_numpy(zero_copy_only=False)
        total_order = _fields(blocks)["total_order"]
        if total_order.null_count != blocks.null_count:
            raise Doubt("a transaction block without total_order")
        orders, lsns, attempts = _lane(total_order), _lane(source["lsn"]), lanes(count)
        snapshot = _snapshot(source["snapshot"])
    plan = reader_.plan
    return TableChanges(
        plan.table, messages.topic, messages.partition, rows, kinds, offsets, transactions, orders, lsns, stamps,
        snapshot, metadata, attempts, unchanged,
        moved(unchanged, pc.equal(parts["op"], "c").to_numpy(zero_copy_only=False)) if unchanged else None,
    )  # fmt: skip


def _snapshot(column: pa.Array) -> UInt8s:
    found = pc.unique(column).to_pylist()
    if found == ["false"]:
        return np.zeros(len(column), np.uint8)
    if not set(found) <= set(SNAPSHOTS):
        raise Doubt("an unknown snapshot state")
    return np.array([SNAPSHOTS[s] for s in column.to_pylist()], np.uint8)


def _lane(column: pa.Array) -> Int64s:
    filled: Int64s = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
    return filled
