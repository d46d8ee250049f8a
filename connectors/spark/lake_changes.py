"""What a lake table's version changed, as the records that are published: at most one a key, in the order of the keys.

Always: images are compared as they are sent, so that every way of reading a table gives the same records, byte for byte. A
version's ENDs are written after all its records are acknowledged. Called by `follow` and `common_clock`.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.connectors.spark.envelope import Stamp, TableCounts, write_ends
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import Producer
from headrace.connectors.spark.lake_feed import BESIDE, CHANGE_TYPE, Feed
from headrace.connectors.spark.row_json import json_texts, json_values

SHOWN = 10
_AFTER, _BEFORE = ("insert", "update_postimage"), ("delete", "update_preimage")


@dataclass(frozen=True)
class Change:
    """A row that was created, updated or deleted (`op`): its key, and its image afterwards, as JSON."""

    key: bytes
    image: bytes | None
    op: str


def images(feed: Feed, rows: pa.Table) -> dict[bytes, bytes]:
    """Whole rows by their key. Raises PublishError for a key that stands twice, or is NULL."""
    keys, found, _ = _texts(feed, rows)
    by_key = dict(zip(keys, found, strict=True))
    if len(by_key) < len(keys):
        twice = [k.decode() for k, n in Counter(keys).items() if n > 1][:SHOWN]
        raise PublishError(f"a primary key stands in several rows: {'; '.join(twice)}", table=feed.table,
                           key=",".join(feed.key), hint="nothing was written")  # fmt: skip
    return by_key


def between(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> list[Change]:
    """What changed, by key."""
    gone = [Change(key, None, "d") for key in before.keys() - after.keys()]
    kept = [Change(k, image, "u" if k in before else "c") for k, image in after.items() if before.get(k) != image]
    return sorted(kept + gone, key=lambda change: change.key)


@dataclass
class Net:
    """What one or several versions of a table changed together: the images before the first, and after the last."""

    before: dict[bytes, bytes | None] = field(default_factory=dict)
    after: dict[bytes, bytes | None] = field(default_factory=dict)

    def add(self, feed: Feed, rows: pa.Table) -> None:
        """Take in what the next version changed. Raises PublishError for a key that stands twice in it, or is NULL."""
        before: dict[bytes, bytes] = {}
        after: dict[bytes, bytes] = {}
        for key, image, kind in zip(*_texts(feed, rows), strict=True):
            side = after if kind in _AFTER else before
            if kind not in _AFTER and kind not in _BEFORE:
                raise PublishError("a change of an unknown kind", table=feed.table, kind=kind)
            if key in side:
                raise PublishError("a primary key stands in several rows of one version", table=feed.table,
                                   key=key.decode(), hint="name columns under the key that identify a row")  # fmt: skip
            side[key] = image
        for key in before.keys() | after.keys():
            self.before.setdefault(key, before.get(key))
            self.after[key] = after.get(key)

    def changes(self) -> list[Change]:
        """At most one change a key: an image before and one after are one update."""
        return between(_there(self.before), _there(self.after))


def _there(images: Mapping[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: image for key, image in images.items() if image is not None}


def _texts(feed: Feed, rows: pa.Table) -> tuple[list[bytes], list[bytes], list[str]]:
    """Key, image and kind of change of each row. Raises PublishError for a NULL key."""
    names = [n for n in rows.schema.names if n not in BESIDE]
    keys: list[bytes] = []
    images: list[bytes] = []
    kinds: list[str] = []
    for batch in rows.to_batches(max_chunksize=50_000):
        for name in feed.key:
            if batch.column(name).null_count:
                raise PublishError("a key is NULL", table=feed.table, column=name, hint="leave such rows out")
        values = {n: json_values(batch.column(n)) for n in names}
        keys += json_texts({n: values[n] for n in feed.key}, batch.num_rows)
        images += json_texts(values, batch.num_rows)
        if CHANGE_TYPE in rows.schema.names:
            kinds += batch.column(CHANGE_TYPE).to_pylist()
    return keys, images, kinds


def write_version(
    producer: Producer, stamp: Stamp, topics: Mapping[str, tuple[str, int]], changes: Mapping[str, Sequence[Change]]
) -> dict[str, TableCounts]:
    """Write a version of these tables, whole, and say what was written. `producer`: one for all versions, as a new one needs half
    a second for its first record. `topics`: the topic of each table, and its partitions."""
    counts = {}
    for table, (topic, partitions) in topics.items():
        head, middle, tail = (text.encode() for text in stamp.around(table))
        sent: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
        ops = Counter({"c": 0, "u": 0, "d": 0})
        for change in changes.get(table, ()):
            value = head + (change.image or b"null") + middle + change.op.encode() + tail
            sent[zlib.crc32(change.key) % partitions].append((change.key, value))
            ops[change.op] += 1
        for partition, records in enumerate(sent):
            producer.produce_batch(topic, partition, records)
        counts[table] = TableCounts(ops["c"], ops["u"], ops["d"], tuple(map(len, sent)))
    producer.flush()
    write_ends(
        producer, {t: topic for t, (topic, _) in topics.items()}, {t: c.partitions for t, c in counts.items()}, stamp
    )
    return counts
