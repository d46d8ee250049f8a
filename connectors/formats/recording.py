"""Recordings: topics as JSON lines, plain or gzipped, for replay and for tests.

One record a line: `topic`, `key`, `value` (the exact strings, null for none), and optionally `partition` (0), `offset`
(counted by topic and partition), `timestamp` (ms), and `headers`, which are passed over. Called by replay.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
import orjson

from headrace.connectors.changes import MessageBatch
from headrace.engine.errors import HeadraceError


class RecordingError(HeadraceError):
    """A line that is no record; names file and line."""

    code = "recording"


@dataclass(frozen=True)
class Record:
    """One message of a recording, in file order."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


_FIELDS: Final = frozenset(("topic", "key", "value", "partition", "offset", "headers", "timestamp"))


def read_records(path: Path | str) -> Iterator[Record]:
    """The records of a file, in its order. Raises RecordingError for a line that is none, OSError as `open` does."""
    path = Path(path)
    following: dict[tuple[str, int], int] = {}
    with _open(path) as lines:
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _record(line, following, path, number)
        except (gzip.BadGzipFile, EOFError, OSError) as error:
            raise RecordingError("the file cannot be read to its end", hint=str(error), file=path) from error


def read_recording(path: Path | str, run: int = 1024) -> Iterator[MessageBatch]:
    """The records of a file as `MessageBatch`: runs of neighbours of one topic partition, at most `run` long."""
    return as_messages(read_records(path), run)


def as_messages(records: Iterable[Record], run: int = 1024) -> Iterator[MessageBatch]:
    """Neighbouring records of one topic partition together."""
    group: list[Record] = []
    for record in records:
        if group and (len(group) >= run or (record.topic, record.partition) != (group[0].topic, group[0].partition)):
            yield _messages(group)
            group = []
        group.append(record)
    if group:
        yield _messages(group)


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


def _record(line: bytes, following: dict[tuple[str, int], int], path: Path, number: int) -> Record:
    def bad(what: str, hint: str = "") -> RecordingError:
        return RecordingError(what, hint=hint, file=path, line=number)

    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise bad("not a JSON object", f"a recording has one JSON object a line ({error.msg})") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("topic"), str):
        raise bad("a record needs a topic", 'write {"topic": …, "key": …, "value": …}')
    unknown = sorted(set(fields) - _FIELDS)
    if unknown or "value" not in fields:
        raise bad(f"unknown field {unknown[0]}" if unknown else "a record needs a value, null for a tombstone")
    for name in ("key", "value"):
        if not isinstance(fields.get(name), str | None):
            raise bad(f"{name} is not a string", "write the message's exact text as a JSON string, or null")
    for name in ("partition", "offset", "timestamp"):
        if type(fields.get(name, 0)) is not int:
            raise bad(f"{name} is not an integer")
    topic, partition = fields["topic"], fields.get("partition", 0)
    offset = fields.get("offset", following.get((topic, partition), 0))
    if offset < following.get((topic, partition), 0):
        raise bad(f"offset {offset} of {topic} goes back")
    following[topic, partition] = offset + 1
    key, value = _bytes(fields.get("key")), _bytes(fields["value"])
    return Record(topic, partition, offset, key, value, fields.get("timestamp", 0))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _messages(group: list[Record]) -> MessageBatch:
    return MessageBatch(
        group[0].topic, group[0].partition,
        np.array([r.offset for r in group], np.int64),
        [r.key for r in group], [r.value for r in group],
        np.array([r.timestamp for r in group], np.int64),
    )  # fmt: skip
