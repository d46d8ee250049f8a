"""A view's changes as Kafka records in JSON: key, value and headers of each, epoch by epoch.

Always: a record's value is the whole state of its key (compaction keeps a view readable): a row, or for a view without
key a row and how often it is there; gone is a tombstone. What JSON's numbers would round (numeric) is a string of
Postgres's text; types are told by the view, not by the JSON. Pure; called by the sink.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.connectors.json_rows import json_objects
from headrace.connectors.sink import EpochStamp, SinkError, SinkView, ViewChanges

Headers = list[tuple[str, bytes]]
Run = Iterable[tuple[bytes, bytes | None, int]]
"""Key, row and diff of each change in an epoch; of a keyed view a row that is gone may be None."""


class Counts:
    """How often each row of a keyless view is there, by the 128-bit digest of its JSON; changes wait for `keep`."""

    def __init__(self) -> None:
        self._kept: dict[bytes, int] = {}
        self._pending: dict[bytes, int] = {}

    def add(self, short: bytes, diff: int) -> int:
        """Change one row's count and return it."""
        count = self._pending.get(short, self._kept.get(short, 0)) + diff
        self._pending[short] = count
        return count

    def keep(self) -> None:
        """The changes since the last `keep` or `forget` are committed."""
        for short, count in self._pending.items():
            if count:
                self._kept[short] = count
            else:
                self._kept.pop(short, None)
        self._pending.clear()

    def forget(self) -> None:
        """The changes since the last `keep` did not happen."""
        self._pending.clear()

    def __len__(self) -> int:
        return len(self._kept)


class Record(NamedTuple):
    """One message to be sent; `value` None is a tombstone."""

    epoch: int
    key: bytes
    value: bytes | None
    headers: Headers


def digest(key: bytes) -> bytes:
    """128 bits that stand for a record's key or value."""
    return blake2b(key, digest_size=16).digest()


def records(
    sink: str, view: SinkView, change: ViewChanges, stamps: Mapping[int, EpochStamp], firsts: Mapping[int, int],
    counts: Counts, *, consolidated: bool = True,
) -> Iterator[Record]:  # fmt: skip
    """The records of `change` in order of epochs; one a key and epoch. Updates `counts` of a keyless view as it goes.
    `firsts`: the first epoch of each range of several, by its last. `consolidated`: no row comes and goes in an epoch.

    Raises SinkError for two rows of one key in an epoch, or a row that would be there less than zero times.
    """
    columns, rows, n = view.schema.columns, change.rows, change.rows.num_rows
    epochs, diffs = change.epochs.tolist(), change.diffs.tolist()
    there: Iterable[int] = range(n)
    if view.key is not None and consolidated:  # what a row said that is gone is in no record
        there = np.flatnonzero(change.diffs > 0).tolist()
        rows = rows.take(pa.array(there, pa.int64()))
    keys = texts = json_objects(columns, rows.columns, rows.num_rows)
    values: list[bytes | None] = [None] * n
    for i, text in zip(there, texts, strict=True):
        values[i] = text
    if view.key is not None:
        keys = json_objects([columns[i] for i in view.key], [change.rows.column(i) for i in view.key], n)
    start = 0
    while start < n:
        epoch, end = epochs[start], bisect_right(epochs, epochs[start], start)
        headers = _headers(firsts.get(epoch, epoch), epoch, stamps.get(epoch))
        run: Run = zip(keys[start:end], values[start:end], diffs[start:end], strict=True)
        states: Iterable[tuple[bytes, bytes | None]]
        if view.key is None:
            states = _multiset_state(sink, view, run, counts)
        else:
            states = _keyed_state(sink, view, run if consolidated else _netted(run))
        for key, state in states:
            yield Record(epoch, key, state, headers)
        start = end


def _netted(run: Run) -> Run:
    """What is left of rows that come and go."""
    net: Counter[tuple[bytes, bytes | None]] = Counter()
    for key, value, diff in run:
        net[key, value] += diff
    return ((key, value if diff > 0 else None, diff) for (key, value), diff in net.items() if diff)


def _keyed_state(sink: str, view: SinkView, run: Run) -> Iterable[tuple[bytes, bytes | None]]:
    found: dict[bytes, bytes | None] = {}
    for key, value, diff in run:
        if diff < 0:
            found.setdefault(key, None)
        elif diff == 1 and found.get(key) is None:
            found[key] = value
        else:
            raise SinkError(
                "two rows for one key", hint="the key declared for this view does not hold", sink=sink, view=view.name
            )
    return found.items()


def _multiset_state(sink: str, view: SinkView, run: Run, counts: Counts) -> Iterator[tuple[bytes, bytes | None]]:
    net: Counter[bytes] = Counter()
    for row, _, diff in run:
        net[row] += diff
    for key, diff in net.items():
        if not diff:
            continue
        count = counts.add(digest(key), diff)
        if count < 0:
            raise SinkError(
                "a row would be there less than zero times", hint="was the topic changed by something else?",
                sink=sink, view=view.name,
            )  # fmt: skip
        yield key, b'{"row":%b,"count":%d}' % (key, count) if count else None


def _headers(first: int, epoch: int, stamp: EpochStamp | None) -> Headers:
    """The first and the last epoch of the range that a record tells of, and what its last says of itself."""
    headers = [("epoch", b"%d" % epoch), ("first_epoch", b"%d" % first)]
    if stamp is not None:
        place = [(kind, text.encode()) for kind, text in stamp.place.json().items() if text is not None]
        headers += [("source", stamp.source.encode()), *place, ("commit_us", b"%d" % stamp.commit_us)]
    return headers


def count_in(value: bytes) -> int:
    """How often the row of a keyless view's record is there."""
    return int(value.rpartition(b":")[2][:-1])


def replacing(
    fresh: Sequence[Record], held: Mapping[bytes, bytes], first: int, epoch: int, stamp: EpochStamp | None
) -> list[Record]:
    """What turns a topic that holds `held` (key → digest of its value) into `fresh`: what differs, then tombstones."""
    kept = {record.key for record in fresh}
    headers = _headers(first, epoch, stamp)
    found = [r for r in fresh if r.value is not None and held.get(r.key) != digest(r.value)]
    return found + [Record(epoch, key, None, headers) for key in held if key not in kept]
