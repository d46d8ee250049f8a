"""The next version and attempt to publish, from the topics' last records and the state folder.

Always: versions only grow; an attempt of an unfinished version is numbered after all that were begun. Called by all that
publish.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import Record, Wire
from headrace.connectors.spark.publisher_state import Manifest, State


@dataclass(frozen=True)
class Mark:
    """What one of our records tells of itself. `query`: the streaming query that wrote it. `lake`: the table's own versions from
    which, and to which, it goes, where they are followed by a common clock. `tables`: those of the version, as an END tells."""

    version: int
    attempt: int
    is_end: bool
    query: str | None = None
    lake: tuple[int, int] | None = None
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What the last records tell: the last version whole in every partition, the greatest (version, attempt) begun."""

    completed: int
    begun: tuple[int, int]
    marks: tuple[Mark, ...] = ()


def seen(wire: Wire, topics: Iterable[tuple[str, int]]) -> Seen:
    """What the topics tell; `topics`: each with how many partitions it has."""
    return told([mark for topic, partitions in topics for mark in marks(wire, topic, partitions)])


def marks(wire: Wire, topic: str, partitions: int) -> list[Mark | None]:
    """What the last record of each partition tells."""
    return [mark_of(record) for record in wire.tails(topic, partitions)]


def told(found: Sequence[Mark | None]) -> Seen:
    """What the last records of all partitions tell together."""
    there = [mark for mark in found if mark]
    if not there:
        return Seen(0, (0, 0))
    begun = max((m.version, m.attempt) for m in there)
    whole = (
        {(m.version, m.attempt) for m in there} == {begun} and all(m.is_end for m in there) and len(there) == len(found)
    )
    ended = max((m.version for m in there if m.is_end), default=0)
    # An END is written after all records of its version: where another partition lacks it, the version is unfinished.
    return Seen(begun[0] if whole else min(ended, begun[0] - 1), begun, tuple(there))


def mark_of(record: Record | None) -> Mark | None:
    """What one of our records tells; None for anything else."""
    if record is None or record[1] is None:
        return None
    try:
        value = json.loads(record[1])
        if value.get("headrace") == "end":
            return Mark(int(value["version"]), int(value["attempt"]), True, value.get("query"), _lake(value),
                        tuple(map(str, value.get("tables", ()))))  # fmt: skip
        source = value["source"]
        return Mark(int(source["txId"]), int(source["attempt"]), False, source.get("query"), _lake(source))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _lake(of: Mapping[str, Any]) -> tuple[int, int] | None:
    if "lake" not in of:
        return None
    start, stop = of["lake"]
    return int(start), int(stop)


def remembered(state: State, found: Seen) -> Manifest:
    """The manifest; completed first when the process died between the last END and the note of it."""
    held = state.read()
    if found.completed > held.completed and held.begun == found.begun and held.begun[0] == found.completed:
        return state.complete()
    return held


def choose(version: int | None, manifest: Manifest, found: Seen) -> tuple[int, int] | None:
    """Version and attempt to publish; None when that version is already whole. Raises PublishError."""
    completed = max(manifest.completed, found.completed)
    begun = max(manifest.begun, found.begun)
    if version is None:
        version = max(completed + 1, begun[0])
    if version < 1:
        raise PublishError("a version is a whole number from 1 on", version=version)
    if version == completed:
        return None
    if version < max(completed, begun[0]):
        raise PublishError(
            f"version {max(completed, begun[0])} has been published or begun", version=version,
            hint="versions only grow: give a greater one, or none",
        )  # fmt: skip
    return version, (begun[1] + 1 if begun[0] == version else 1)
