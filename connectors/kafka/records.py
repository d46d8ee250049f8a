"""A view's changes as Kafka records in JSON: key, value and headers of each, epoch by epoch.

Always: a record's value is the whole state of its key (compaction keeps a view readable): a row, or for a view without
key a row and how often it is there; gone is a tombstone. What JSON's numbers would round (numeric) is a string of
Postgres's text; types are told by the view, not by the JSON. Pure; called by the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from headrace.connectors.json_rows import json_objects
from headrace.connectors.sink import EpochStamp, SinkError, SinkView, ViewChanges

Headers = list[tuple[str, bytes]]


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


@dataclass(frozen=True)
class Record:
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
    counts: Counts,
) -> Iterator[Record]:  # fmt: skip
    """The records of `change` in order of epochs; one a key and epoch. Updates `counts` of a keyless view as it goes.
    `firsts`: the first epoch of each range of several, by its last.

    Raises SinkError for two rows of one key in an epoch, or a row that would be there less than zero times.
    """
    columns = view.schema.columns
    n = change.rows.num_rows
    values = json_objects(columns, change.rows.columns, n)
    epochs, diffs = change.epochs.tolist(), change.diffs.tolist()
    keys = values
    if view.key is not None:
        keys = json_objects([columns[i] for i in view.key], [change.rows.column(i) for i in view.key], n)
    state: Callable[..., Iterator[tuple[bytes, bytes | None]]] = _multiset_state if view.key is None else _keyed_state
    start = 0
    while start < n:
        end = start
        while end < n and epochs[end] == epochs[start]:
            end += 1
        epoch = epochs[start]
        headers = _headers(firsts.get(epoch, epoch), epoch, stamps.get(epoch))
        run = range(start, end)
        for key, value in state(sink, view, [(keys[i], values[i], diffs[i]) for i in run], counts):
            yield Record(epoch, key, value, headers)
        start = end


def _keyed_state(
    sink: str, view: SinkView, run: Sequence[tuple[bytes, bytes, int]], counts: Counts
) -> Iterator[tuple[bytes, bytes | None]]:
    del counts
    net: dict[bytes, dict[bytes, int]] = {}
    for key, value, diff in run:
        by_value = net.setdefault(key, {})
        by_value[value] = by_value.get(value, 0) + diff
    for key, by_value in net.items():
        there = [value for value, diff in by_value.items() if diff > 0]
        if len(there) > 1 or any(diff > 1 for diff in by_value.values()):
            raise SinkError(
                "two rows for one key", hint="the key declared for this view does not hold", sink=sink, view=view.name
            )
        if there or any(by_value.values()):
            yield key, there[0] if there else None


def _multiset_state(
    sink: str, view: SinkView, run: Sequence[tuple[bytes, bytes, int]], counts: Counts
) -> Iterator[tuple[bytes, bytes | None]]:
    net: dict[bytes, int] = {}
    for key, _, diff in run:
        net[key] = net.get(key, 0) + diff
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
