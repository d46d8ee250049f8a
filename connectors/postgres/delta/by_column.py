"""A view's change by column: rows to insert and rows to delete, each once, in one order.

Invariant: positions are those of the rows that came. Inserts and deletes of a keyed view never name the same image of a key,
and both are ordered by key, so that every write locks rows in one order. Pure; the sink calls it before it opens a
transaction.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors import copy_text
from headrace.connectors.postgres.ddl import Table
from headrace.connectors.sink import SinkError, ViewChanges
from headrace.engine.batch.updates import Int64s


@dataclass(frozen=True)
class Net:
    """`puts`: positions of rows to be there; `takes`: of rows to go (keyed: whose key goes). `counts`: of a keyless
    view, how many copies of each (puts' first, then takes', all > 0). `whole`: the puts replace everything.
    """

    table: Table
    texts: tuple[pa.Array, ...]
    fields: tuple[pa.Array, ...]
    lines: pa.Array
    puts: Int64s
    takes: Int64s
    put_counts: Int64s
    take_counts: Int64s
    whole: bool

    def __len__(self) -> int:
        return len(self.puts) + len(self.takes)

    @cached_property
    def null_patterns(self) -> list[tuple[tuple[bool, ...], Int64s]]:
        """The takes by which of their key columns are null, as `=` finds no null."""
        columns = [self.texts[i] for i in self.table.view.key or ()]
        if not any(c.null_count for c in columns):
            return [((False,) * len(columns), self.takes)] if len(self.takes) else []
        nulls = np.array([c.is_null().to_numpy(zero_copy_only=False)[self.takes] for c in columns])
        groups: dict[tuple[bool, ...], list[int]] = {}
        for position, pattern in zip(self.takes.tolist(), nulls.T.tolist(), strict=True):
            groups.setdefault(tuple(pattern), []).append(position)
        return [(pattern, np.array(found, np.int64)) for pattern, found in sorted(groups.items())]

    def fingerprints(self, positions: Int64s) -> list[str]:
        """128 bits of each row's text, as uuids: by these a row of a view without a key is found again."""
        return [fingerprint(line) for line in self.lines.take(pa.array(positions)).to_pylist()]


def fingerprint(line: str) -> str:
    """128 bits of a row's line, as a uuid: what finds a row of a keyless view again."""
    return str(UUID(bytes=hashlib.blake2b(line.encode(), digest_size=16).digest()))


def two_rows(sink: str, table: Table) -> SinkError:
    """The key that was declared does not hold."""
    return SinkError(
        "two rows for one key", hint="the key declared for this view does not hold", sink=sink, view=table.view.name
    )


def net(sink: str, table: Table, change: ViewChanges) -> Net:
    """The net of `change` over all its epochs. Raises SinkError for two rows of one key, or a retraction in a whole."""
    schema = table.view.schema
    texts = copy_text.text_columns(schema, change.rows)
    fields = copy_text.copy_fields(schema, texts)
    lines = copy_text.lines(fields, change.rows.num_rows)
    positions, counts = _sum(lines, change.diffs)
    if change.whole and (counts < 0).any():
        raise SinkError("a whole view holds a row less than zero times", sink=sink, view=table.view.name)
    puts, takes = positions[counts > 0], positions[counts < 0]
    if table.view.key is None:
        put_counts, take_counts = counts[counts > 0], -counts[counts < 0]
    else:
        keys = copy_text.lines([fields[i] for i in table.view.key], change.rows.num_rows)
        puts, takes = _by_key(sink, table, keys, puts, takes, counts)
        put_counts, take_counts = np.ones(len(puts), np.int64), np.ones(len(takes), np.int64)
    return Net(table, tuple(texts), tuple(fields), lines, puts, takes, put_counts, take_counts, change.whole)


def _sum(lines: pa.Array, diffs: Int64s) -> tuple[Int64s, Int64s]:
    """Positions of one row of each image whose diffs do not cancel, in order of image, and their sums."""
    table = pa.table({"line": lines, "position": np.arange(len(lines)), "diff": diffs})
    grouped = table.group_by("line").aggregate([("position", "min"), ("diff", "sum")])
    grouped = grouped.filter(pc.not_equal(grouped["diff_sum"], 0)).sort_by("line")
    return grouped["position_min"].to_numpy(), grouped["diff_sum"].to_numpy()


def _by_key(
    sink: str, table: Table, keys: pa.Array, puts: Int64s, takes: Int64s, counts: Int64s
) -> tuple[Int64s, Int64s]:
    """Puts ordered by key, and the takes of keys that no put replaces."""
    put_keys = keys.take(pa.array(puts))
    if (counts > 1).any() or pc.count_distinct(put_keys).as_py() < len(puts):
        raise two_rows(sink, table)
    take_keys = keys.take(pa.array(takes))
    gone = ~pc.is_in(take_keys, value_set=put_keys).to_numpy(zero_copy_only=False) if len(takes) else np.zeros(0, bool)
    takes, take_keys = takes[gone], take_keys.filter(pa.array(gone))
    return puts[pc.sort_indices(put_keys).to_numpy()], takes[pc.sort_indices(take_keys).to_numpy()]
