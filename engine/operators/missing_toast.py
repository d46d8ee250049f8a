"""The errors of keys whose unchanged (TOASTed) value was not sent while they have no earlier row to take it from.

Always: one error a key and column, whose message names table, column and key, so that it is retracted exactly when a
later change of the key sends the value, deletes the row, or truncates the table. Called by the intake of keyed tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.operators.delta import concat, errors_at
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.schema import Schema


class Touched(NamedTuple):
    """Changes in their order: the `groups` (numbers of keys) and `epochs` of each, `bad` where it lacks a value.

    `lacks`: column → which changes did not send it. `keys`: the key columns, one row a group. `truncated`: the epoch of
    the first truncate among the changes, or None.
    """

    groups: Int64s
    epochs: Int64s
    bad: Bools
    lacks: Mapping[int, Bools]
    keys: pa.RecordBatch
    truncated: int | None


def unfilled(name: str, schema: Schema, touched: Touched, live: Updates | None) -> Updates | None:
    """What `touched` changes of the errors, of which `live` are there before it (texts and multiplicities)."""
    if live is None:
        touched = _of_bad_keys(touched)
    texts = pa.array([], MESSAGE) if live is None else live.rows.column(0)
    order = np.argsort(touched.groups, kind="stable")
    groups, epochs = touched.groups[order], touched.epochs[order]
    # the last change of a key in an epoch says how the key leaves it
    ends = order[np.append((groups[1:] != groups[:-1]) | (epochs[1:] != epochs[:-1]), True)[: len(order)]]
    groups, epochs = touched.groups[ends], touched.epochs[ends]
    first = np.append(True, groups[1:] != groups[:-1])[: len(ends)]
    values = _shown(touched.keys)
    parts, seen = [], np.zeros(len(texts), np.bool_)
    for column in range(len(schema.columns)):
        head, tail = message_around(name, schema, column)
        lacking = (
            (touched.bad & touched.lacks[column])[ends] if column in touched.lacks else np.zeros(len(ends), np.bool_)
        )
        if not lacking.any() and not pc.any(pc.starts_with(texts, head)).as_py():
            continue
        empty = pa.scalar("", MESSAGE)
        messages = pc.binary_join_element_wise(pa.scalar(head, MESSAGE), values, pa.scalar(tail, MESSAGE), empty)
        known = pc.is_in(messages, texts).to_numpy(zero_copy_only=False)
        before = np.where(first, known[groups], np.roll(lacking, 1))
        diffs = lacking.astype(np.int64) - before.astype(np.int64)
        at = np.flatnonzero(diffs)
        parts.append(errors_at(messages.take(pa.array(groups[at])), epochs[at], diffs[at]))
        seen |= pc.is_in(texts, messages).to_numpy(zero_copy_only=False)
    if live is not None and touched.truncated is not None:
        own = pc.starts_with(texts, _head(name)).to_numpy(zero_copy_only=False)
        gone = np.flatnonzero(own & ~seen)
        when = np.full(len(gone), touched.truncated, np.int64)
        parts.append(errors_at(texts.take(pa.array(gone)), when, -live.diffs[gone]))
    return concat(parts)


def _of_bad_keys(touched: Touched) -> Touched:
    """The changes of the keys that lack a value at some time: without live errors no other key has anything to say."""
    wanted = np.zeros(touched.keys.num_rows, np.bool_)
    wanted[touched.groups[touched.bad]] = True
    numbers = np.cumsum(wanted) - 1
    picked = wanted[touched.groups]
    return Touched(
        numbers[touched.groups[picked]],
        touched.epochs[picked],
        touched.bad[picked],
        {c: mask[picked] for c, mask in touched.lacks.items()},
        touched.keys.filter(pa.array(wanted)),
        touched.truncated,
    )


def _head(name: str) -> str:
    """With what every message of these begins, and no other error of the table."""
    return f"table {name}: the unchanged value of column "


def message_around(name: str, schema: Schema, column: int) -> tuple[str, str]:
    """What stands in a message before and after the key's values; whoever deals tables out reads the key between them."""
    key = ", ".join(schema.columns[k].name for k in schema.key or ())
    lacking = f"{_head(name)}{schema.columns[column].name} was not sent"
    return f"{lacking}, and its key ({key}) = (", ") has no earlier row"


def _shown(keys: pa.RecordBatch) -> pa.Array:
    """Each key as text; texts are quoted, so that different keys are different texts."""
    shown = []
    for column in keys.columns:
        if pa.types.is_large_binary(column.type):
            text = pa.array([None if v is None else "\\x" + v.hex() for v in column.to_pylist()], MESSAGE)
        elif pa.types.is_large_string(column.type):
            quote = pa.scalar("'", MESSAGE)
            doubled = pc.replace_substring(column, "'", "''")
            text = pc.binary_join_element_wise(quote, doubled, quote, pa.scalar("", MESSAGE))
        else:
            text = column.cast(MESSAGE)
        shown.append(text.fill_null("null"))
    return pc.binary_join_element_wise(*shown, pa.scalar(", ", MESSAGE))
