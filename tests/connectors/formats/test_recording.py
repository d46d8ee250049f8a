"""Recordings: exact strings in, runs of messages out, and bad lines by file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.formats.recording import RecordingError, read_recording, read_records

LINES: list[dict[str, Any]] = [
    {"topic": "a", "key": "k", "value": '{"x":"é"}'},
    {"topic": "a", "key": None, "value": None, "timestamp": 9, "headers": [["h", "v"]]},
    {"topic": "b", "key": None, "value": "1", "partition": 2, "offset": 40},
    {"topic": "a", "key": None, "value": "2"},
]


@pytest.mark.parametrize("zipped", [False, True])
def test_runs_of_neighbours_in_file_order(tmp_path: Path, zipped: bool) -> None:
    text = "\n".join(json.dumps(line) for line in LINES) + "\n"
    path = tmp_path / ("r.jsonl.gz" if zipped else "r.jsonl")
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    runs = list(read_recording(path))
    assert [(r.topic, r.partition, r.offsets.tolist(), r.values) for r in runs] == [
        ("a", 0, [0, 1], ['{"x":"é"}'.encode(), None]),
        ("b", 2, [40], [b"1"]),
        ("a", 0, [2], [b"2"]),
    ]
    assert runs[0].keys == [b"k", None]
    assert runs[0].timestamps.tolist() == [0, 9]
    assert [len(r) for r in read_recording(path, run=1)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "not a JSON object"),
        ("[]", "needs a topic"),
        ('{"topic":"a","key":null}', "needs a value"),
        ('{"topic":"a","value":{"x":1}}', "value is not a string"),
        ('{"topic":"a","value":null,"ofset":1}', "unknown field ofset"),
        ('{"topic":"a","value":null,"offset":"1"}', "offset is not an integer"),
        ('{"topic":"a","value":null,"offset":0}', "goes back"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"topic":"a","key":null,"value":"1"}\n\n' + line + "\n")
    with pytest.raises(RecordingError, match=what) as caught:
        list(read_records(path))
    assert caught.value.where == {"file": path, "line": 3}


def test_a_file_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"topic":"a","key":null,"value":"1"}\n' * 1000)[:-20])
    with pytest.raises(RecordingError, match="cannot be read"):
        list(read_records(path))
