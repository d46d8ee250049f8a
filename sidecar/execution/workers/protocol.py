"""What the driver and its workers say to each other: a head in JSON, and rows as the buffers that hold them.

Always: a row is never spelt out; both sides know every schema, so that none travels. Plans alone are pickled, as they are
where a worker's process begins. Called by the driver and `worker`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.exchange_codec import Message, received, sent
from headrace.engine.batch.updates import Updates, Upserts
from headrace.engine.operators.delta import ERRORS
from headrace.sidecar.state.batch_store import BatchFile, Files

Head = Mapping[str, Any]
Sides = tuple[Updates | None, Updates | None]
"""Updates of rows and of errors."""


def message(head: Head, parts: Sequence[Message] = ()) -> Message:
    """A head and what follows it, part by part."""
    text = json.dumps({**head, "parts": [len(part) for part in parts]}).encode()
    return [text, *(buffer for part in parts for buffer in part)]


def opened(found: Message) -> tuple[dict[str, Any], list[Message]]:
    """The head and the parts of a message."""
    head = json.loads(bytes(found[0]))
    parts, at = [], 1
    for count in head.pop("parts"):
        parts.append(found[at : at + count])
        at += count
    return head, parts


def upserts_out(upserts: Upserts) -> tuple[list[int], list[Message]]:
    """Changes of a table: which columns have values that were not sent, and the parts that carry them."""
    fills = np.full(len(upserts), -1, np.int64) if upserts.fill_from is None else upserts.fill_from
    columns = sorted(upserts.unchanged)
    masks = [np.ascontiguousarray(upserts.unchanged[c]) for c in columns]
    kinds = np.ascontiguousarray(upserts.kinds)
    return columns, [sent(Updates(upserts.rows, upserts.epochs, fills)), [kinds, *masks]]


def upserts_in(columns: Sequence[int], parts: Sequence[Message], schema: pa.Schema) -> Upserts:
    """As `upserts_out` gave them; there is at least one."""
    rows = received(parts[0], schema)
    assert rows is not None
    kinds, *masks = parts[1]
    unchanged = {c: np.frombuffer(mask, np.bool_) for c, mask in zip(columns, masks, strict=True)}
    fills = rows.diffs if bool((rows.diffs >= 0).any()) else None
    return Upserts(rows.rows, rows.times, np.frombuffer(kinds, np.uint8), unchanged, fills)


def sides_out(sides: Sides) -> list[Message]:
    """Rows and errors, as two parts."""
    return [sent(side) for side in sides]


def sides_in(parts: Sequence[Message], schema: pa.Schema) -> Sides:
    """As `sides_out` gave them."""
    return received(parts[0], schema), received(parts[1], ERRORS.arrow)


def files_out(files: Files) -> dict[str, list[tuple[str, int, int]]]:
    """Names of batch files, for a head."""
    return {name: [(f.name, f.bytes, f.shard) for f in some] for name, some in files.items()}


def files_in(found: Mapping[str, Sequence[Sequence[Any]]]) -> Files:
    """As `files_out` gave them."""
    return {name: [BatchFile(*one) for one in some] for name, some in found.items()}


def packed(plans: object) -> Message:
    """Plans as a part."""
    return [pickle.dumps(plans)]


def unpacked(part: Message) -> Any:
    """As `packed` gave them: only ever of the driver, whose program the worker is."""
    return pickle.loads(bytes(part[0]))  # noqa: S301 (a socket of our own processes)
