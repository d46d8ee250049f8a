"""To which shard each live error of a table belongs, where a checkpoint is sharded to another count of workers.

Invariant: the error of a key is with the rows of that key, as the shard that has the key retracts it; all other errors of a
table are the first shard's, which is told of them. A message tells its key. Called by dataflows that recover.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.batch.partitioning import shard_positions
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.missing_toast import message_around
from headrace.engine.schema import Schema

_BETWEEN = ", "


def shards_of(table: str, schema: Schema, layout: Layout, messages: Sequence[str], count: int) -> Int64s:
    """The shard of each message. `layout`: of the table's rows by their key. Raises ValueError for a key that cannot be read."""
    shards = np.zeros(len(messages), np.int64)
    found = {at: key for at, text in enumerate(messages) if (key := _key_in(table, schema, text)) is not None}
    if found:
        rows = _rows(schema, list(found.values()))
        at = np.fromiter(found, np.int64, len(found))
        for shard, positions in enumerate(shard_positions(layout.keys(rows).hash, count)):
            shards[at[positions]] = shard
    return shards


def _key_in(table: str, schema: Schema, message: str) -> list[str] | None:
    """The texts of a key's values in a message; None in one that is not about a key."""
    for column in range(len(schema.columns) if schema.key else 0):
        head, tail = message_around(table, schema, column)
        if message.startswith(head) and message.endswith(tail):
            return _split(message[len(head) : len(message) - len(tail)], schema)
    return None


def _split(shown: str, schema: Schema) -> list[str]:
    """The values of a key as its message shows them: texts are quoted, and no other value has a comma."""
    values, at = [], 0
    for position, column in enumerate(schema.key or ()):
        if position:
            if not shown.startswith(_BETWEEN, at):
                raise ValueError(f"no key can be read in {shown!r}")
            at += len(_BETWEEN)
        if pa.types.is_large_string(schema.arrow.field(schema.columns[column].name).type):
            end = _quote_after(shown, at)
            values.append(shown[at + 1 : end].replace("''", "'"))
            at = end + 1
        else:
            end = shown.find(_BETWEEN, at)
            end = len(shown) if end < 0 else end
            values.append(shown[at:end])
            at = end
    if at != len(shown):
        raise ValueError(f"no key can be read in {shown!r}")
    return values


def _quote_after(shown: str, at: int) -> int:
    """Where the quoted text that begins at `at` ends."""
    if not shown.startswith("'", at):
        raise ValueError(f"no key can be read in {shown!r}")
    end = at + 1
    while True:
        end = shown.index("'", end)
        if not shown.startswith("''", end):
            return end
        end += 2


def _rows(schema: Schema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
    """Rows with these keys, and nothing else."""
    columns = {schema.columns[c].name: [key[k] for key in keys] for k, c in enumerate(schema.key or ())}
    arrays = []
    for column in schema.arrow:
        texts = columns.get(column.name)
        if texts is None:
            arrays.append(pa.nulls(len(keys), column.type))
        elif pa.types.is_large_binary(column.type):
            arrays.append(pa.array([bytes.fromhex(text.removeprefix("\\x")) for text in texts], column.type))
        else:
            try:
                arrays.append(pa.array(texts, pa.string()).cast(column.type))
            except pa.ArrowException as error:
                raise ValueError(f"no {column.type} can be read in {texts[0]!r}") from error
    whole = pa.schema([field.with_nullable(True) for field in schema.arrow])
    return pa.RecordBatch.from_arrays(arrays, schema=whole)
