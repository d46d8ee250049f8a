"""Row building: payloads of one table, all of one plan, in offset order → `TableChanges`.

Column by column: values are taken out of the parsed images by one C call a row and handed to Arrow as columns. Raises
for the whole run when any value is bad; the envelope decoder narrows it down. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from headrace.connectors.changes import Event, MessageBatch, TableChanges, lanes
from headrace.connectors.formats.table_decoders import Plan
from headrace.connectors.formats.table_specs import CannotDecode
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT, Bools, Int64s, UInt8s

DATA_ERRORS: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    CannotDecode,
    RecursionError,
    pa.ArrowException,
)
"""What malformed data can make the parser, Arrow and plain indexing raise."""

_FULL_HINT: Final = "a table without key needs ALTER TABLE … REPLICA IDENTITY FULL in the source"
_KEYLESS_HINT: Final = (
    "nothing tells such a row from one that is here: let no signal name the table, and compare it by `headrace resync`"
)
SNAPSHOTS: Final = {
    None: 0, False: 0, "false": 0, "incremental": 2, True: 1, "true": 1, "first": 1,
    "first_in_data_collection": 1, "last_in_data_collection": 1, "last": 1,
}  # fmt: skip
"""source.snapshot → the snapshot lane."""

_PARTS: Final = itemgetter("op", "source", "after", "transaction")
_SOURCE: Final = itemgetter("txId", "lsn", "ts_us")
_ATTEMPT: Final = itemgetter("txId", "attempt", "ts_us")
_SNAPSHOT: Final = itemgetter("snapshot")
_ORDER: Final = itemgetter("total_order")
_UPSERTS: Final = frozenset(("c", "r", "u"))
_INSERTS: Final = frozenset(("c", "r"))

_INT: Final = frozenset((int,))

SMALL: Final = 64
"""Up to so many rows, one call that makes all columns of Python values beats a call a column."""

Afters = Sequence[Any]


@dataclass(frozen=True)
class Run:
    """Payloads of one plan: `docs[i]` is message `positions[i]`. `key_of`: the payload of a key, by position."""

    messages: MessageBatch
    positions: Sequence[int]
    docs: Sequence[Mapping[str, Any]]
    key_of: Callable[[int], Any]

    def lacks(self, column: str) -> bool:
        """Whether no row has a column."""
        return not any(column in (doc.get("after") or ()) for doc in self.docs)


def build(plan: Plan, run: Run, versions: bool) -> TableChanges:
    """The changes of a run. `versions`: the source numbers versions and attempts (Spark) and not transactions."""
    try:
        # a tuple first: CPython 3.11 keeps a call's keywords permanently where what `*` unpacks raises
        parts = tuple(map(_PARTS, run.docs))
    except KeyError:
        parts = tuple((d["op"], d["source"], d.get("after"), d.get("transaction")) for d in run.docs)
    ops, sources, afters, blocks = zip(*parts, strict=True)
    make = _keyless if plan.schema.key is None else _keyed
    images, kinds, rows_of = make(plan, run, ops, afters)
    offsets = run.messages.offsets
    if len(run.positions) != len(offsets) or run.positions[0] != 0:
        offsets = offsets[np.array(run.positions, np.int64)]
    if rows_of is not None:
        sources, blocks = tuple(sources[i] for i in rows_of), tuple(blocks[i] for i in rows_of)
        offsets = offsets[np.array(rows_of, np.int64)]
    rows, unchanged = batch(plan, plan.columns(images))
    transactions, lsns, stamps, attempts = _source_lanes(sources, blocks, versions)
    orders, metadata = _order_lanes(blocks, versions)
    snapshot, read = _snapshot_lane(sources), None
    if len(chunk := np.flatnonzero(snapshot == 2)):
        if plan.schema.key is None:
            raise CannotDecode("a row of an incremental snapshot of a table without a key", _KEYLESS_HINT)
        transactions[chunk], lsns[chunk] = zip(*[_sent_at(sources[i]) for i in chunk.tolist()], strict=True)
    if (snapshot == 1).any():
        read = np.array(_integers(_or(run.docs[i].get("ts_ms"), -1) for i in rows_of or range(len(ops))), np.int64)
    return TableChanges(
        plan.table, run.messages.topic, run.messages.partition, rows, kinds, offsets,
        transactions, orders, lsns, stamps, snapshot, metadata, attempts, unchanged,
        moved(unchanged, np.array([op == "c" for op in ops])) if unchanged else None, read,
    )  # fmt: skip


def moved(unchanged: Mapping[int, Bools], created: Bools) -> Bools | None:
    """The creates that lack a TOASTed value: only the second half of a primary-key change does. None for none."""
    if not unchanged:
        return None
    found: Bools = created & np.logical_or.reduce(list(unchanged.values()))
    return found if found.any() else None


def _keyed(plan: Plan, run: Run, ops: Sequence[str], afters: Afters) -> tuple[Afters, UInt8s, None]:
    if _UPSERTS.issuperset(ops) and None not in afters:
        return afters, np.full(len(ops), UPSERT, np.uint8), None
    key = plan.key or ()
    blank = dict.fromkeys(plan.sent)
    images: list[Mapping[str, Any]] = []
    kinds = np.empty(len(ops), np.uint8)
    for i, op in enumerate(ops):
        if op in ("c", "r", "u"):
            images.append(_present(afters[i], "after"))
            kinds[i] = UPSERT
        elif op == "d":
            images.append({**blank, **_key_image(key, run, i)})
            kinds[i] = DELETE
        elif op == "t":
            images.append(blank)
            kinds[i] = TRUNCATE
        else:
            raise CannotDecode("an operation that is none of c, u, d, r, t", "remove transforms from the connector")
    return images, kinds, None


def _key_image(key: Sequence[str], run: Run, i: int) -> dict[str, Any]:
    """The key of a deleted row: of `before`, which may hold the key alone, or of the message's key."""
    before = run.docs[i].get("before") or {}
    image = {name: before.get(name) for name in key}
    if None in image.values():
        payload = run.key_of(run.positions[i]) or {}
        image = {name: payload.get(name) for name in key}
    if None in image.values():
        raise CannotDecode("a delete without its key", "the table needs a primary key or REPLICA IDENTITY FULL")
    return image


def _keyless(plan: Plan, run: Run, ops: Sequence[str], afters: Afters) -> tuple[Afters, UInt8s, list[int] | None]:
    if _INSERTS.issuperset(ops) and None not in afters:
        return afters, np.full(len(ops), INSERT, np.uint8), None
    blank = dict.fromkeys(plan.sent)
    images: list[Mapping[str, Any]] = []
    kinds: list[int] = []
    rows_of: list[int] = []
    for i, op in enumerate(ops):
        if op not in ("c", "r", "u", "d", "t"):
            raise CannotDecode("an operation that is none of c, u, d, r, t", "remove transforms from the connector")
        before = run.docs[i].get("before")
        if op in ("u", "d"):
            if before is None:
                raise CannotDecode("a change of a keyless table without the row as it was", _FULL_HINT)
            images.append(before)
            kinds.append(RETRACT)
        if op in ("c", "r", "u"):
            after = _present(afters[i], "after")
            images.append(after if before is None else _filled(plan, before, after))
            kinds.append(INSERT)
        if op == "t":
            images.append(blank)
            kinds.append(TRUNCATE)
        rows_of.extend([i] * (len(images) - len(rows_of)))
    return images, np.array(kinds, np.uint8), rows_of


def _present(image: Mapping[str, Any] | None, which: str) -> Mapping[str, Any]:
    if image is None:
        raise CannotDecode(f"a change without {which}", "remove transforms from the connector")
    return image


def _filled(plan: Plan, before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any]:
    """A keyless row's unsent values stand in the same message: FULL identity sends the whole row as it was."""
    gaps = {
        name: before.get(name)
        for name, unsent in zip(plan.sent, plan.unsent, strict=True)
        if unsent and after.get(name) in unsent
    }
    return {**after, **gaps} if gaps else after


def batch(plan: Plan, columns: list[Sequence[Any]]) -> tuple[pa.RecordBatch, dict[int, Bools]]:
    """The rows of `columns` (JSON values), and by position the masks of values that were not sent.

    Raises one of DATA_ERRORS for a value that cannot be kept exactly.
    """
    unchanged: dict[int, Bools] = {}
    for at, unsent in plan.toastable:
        values = columns[at]
        for placeholder in unsent:
            if placeholder in values:
                mask = [v in unsent for v in values]
                columns[at] = [None if missing else v for v, missing in zip(values, mask, strict=True)]
                unchanged[at] = np.array(mask, np.bool_)
                break
    if plan.schema.key is None and unchanged:
        raise CannotDecode("an unchanged TOASTed value in a keyless table", _FULL_HINT)
    few = len(columns[0]) <= SMALL
    made = [
        _column(plan, at, decoder.values if few else decoder.array, columns[at])
        for at, decoder in enumerate(plan.decoders)
    ]
    if not few:
        return pa.RecordBatch.from_arrays(made, schema=plan.schema.arrow), unchanged
    try:
        struct = pa.array(list(zip(*made, strict=True)), plan.struct)
    except DATA_ERRORS:
        # which column it was, Arrow does not say
        made = [_column(plan, at, partial(pa.array, type=plan.decoders[at].lane), v) for at, v in enumerate(made)]
        return pa.RecordBatch.from_arrays(made, schema=plan.schema.arrow), unchanged
    return pa.RecordBatch.from_struct_array(struct), unchanged


def _column(plan: Plan, at: int, make: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    try:
        return make(values)
    except CannotDecode as error:
        name = plan.schema.names[at]
        raise CannotDecode(f"column {name}: {error.reason}", error.hint, column=name) from None
    except DATA_ERRORS:
        # Arrow's own message would show the value
        column = plan.schema.columns[at]
        raise CannotDecode(
            f"column {column.name}: a value that is no {column.type} as this source writes it",
            "declare the column's type in the source and the connector's modes as they are",
            column=column.name,
        ) from None


def _source_lanes(
    sources: Sequence[Mapping[str, Any]], blocks: Sequence[Any], versions: bool
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """(transactions, lsns, timestamps in µs, attempts) of the events' source blocks."""
    count = len(sources)
    try:
        # one call for three lanes, laid out lane by lane
        found = [*map(_ATTEMPT if versions else _SOURCE, sources)]
        made = np.array(_integers(chain.from_iterable(found)), np.int64).reshape(count, 3).T.copy()
    except (KeyError, TypeError):
        columns = (
            [_txid(source, block) for source, block in zip(sources, blocks, strict=True)],
            [s["attempt"] if versions else _or(s.get("lsn"), -1) for s in sources],
            [s["ts_us"] if s.get("ts_us") is not None else _or(s.get("ts_ms"), 0) * 1000 for s in sources],
        )
        made = np.array([_integers(column) for column in columns], np.int64)
    transactions, middle, stamps = made
    return (
        (transactions, lanes(count, -1), stamps, middle) if versions else (transactions, middle, stamps, lanes(count))
    )


def _integers(values: Iterable[Any]) -> list[int]:
    """Numbers of a record's own, which numpy would also make of texts, fractions and lists. Raises TypeError."""
    found = list(values)
    if not _INT.issuperset(map(type, found)):
        raise TypeError("not an integer")
    return found


def event_of(doc: Mapping[str, Any]) -> Event | None:
    """Whose change a document is that became none; None where even that cannot be read."""
    try:
        source, block = doc["source"], doc.get("transaction")
        order = int(block["total_order"]) if block else -1
        snapshot = SNAPSHOTS[source.get("snapshot")]
        if snapshot == 2:
            return Event(-1, -1, _sent_at(source)[1], snapshot=False)
        return Event(_txid(source, block), order, int(_or(source.get("lsn"), -1)), snapshot == 1)
    except DATA_ERRORS:
        return None


def _txid(source: Mapping[str, Any], block: Any) -> int:
    """The transaction of an event, which perhaps only its transaction block names; -1 where nothing does."""
    value = source.get("txId")
    if value is None and block:
        return int(str(block["id"]).partition(":")[0])
    return _or(value, -1)


def _sent_at(source: Mapping[str, Any]) -> tuple[int, int]:
    """Where in the stream a row of an incremental snapshot was sent: (LSN of the last commit before it, -1 for none, LSN of the
    change that was read there), which stand in its sequence: it has no transaction of its own."""
    commit, change = orjson.loads(source["sequence"])
    before, at = _integers((-1 if commit is None else int(commit), int(change)))
    return before, at


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _snapshot_lane(sources: Sequence[Mapping[str, Any]]) -> UInt8s:
    try:
        found = set(map(_SNAPSHOT, sources))
    except KeyError:
        return np.array([SNAPSHOTS[s.get("snapshot")] for s in sources], np.uint8)
    if found == {"false"}:
        return np.zeros(len(sources), np.uint8)
    return np.array([SNAPSHOTS[s["snapshot"]] for s in sources], np.uint8)


def _order_lanes(blocks: Sequence[Any], versions: bool) -> tuple[Int64s, Bools]:
    """(total_order or -1, whether there is a transaction block)."""
    if versions or not any(blocks):
        return lanes(len(blocks), -1), np.zeros(len(blocks), np.bool_)
    if all(blocks):
        return np.array(_integers(map(_ORDER, blocks)), np.int64), np.ones(len(blocks), np.bool_)
    orders = np.array(_integers(block["total_order"] if block else -1 for block in blocks), np.int64)
    return orders, np.array([bool(block) for block in blocks], np.bool_)


def concat(pieces: Sequence[TableChanges]) -> TableChanges:
    """Consecutive pieces of one table and schema as one."""
    first = pieces[0]
    if len(pieces) == 1:
        return first

    def joined(name: str) -> Any:
        return np.concatenate([getattr(piece, name) for piece in pieces])

    unchanged = {
        at: np.concatenate([p.unchanged.get(at, np.zeros(len(p), np.bool_)) for p in pieces])
        for at in sorted({at for p in pieces for at in p.unchanged})
    }
    halves = None
    if any(p.moved is not None for p in pieces):
        halves = np.concatenate([np.zeros(len(p), np.bool_) if p.moved is None else p.moved for p in pieces])
    read = None
    if any(p.read_ms is not None for p in pieces):
        read = np.concatenate([lanes(len(p), -1) if p.read_ms is None else p.read_ms for p in pieces])
    return TableChanges(
        first.table, first.topic, first.partition, pa.concat_batches([p.rows for p in pieces]),
        joined("kinds"), joined("offsets"), joined("transactions"), joined("orders"), joined("lsns"),
        joined("timestamps"), joined("snapshot"), joined("metadata"), joined("attempts"), unchanged, halves, read,
    )  # fmt: skip
