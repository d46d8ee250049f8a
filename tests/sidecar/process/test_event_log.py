"""Lines of the log parse back, name only events of the list, and repeat no library's line more than once a minute."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sidecar.process import event_log
from headrace.sidecar.process.event_log import KAFKA, _value, configure, parse, say
from headrace.sidecar.process.events import EVENTS

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """The session's logging is as it was."""
    root = logging.getLogger()
    before = list(root.handlers), event_log.LOGGER.level, logging.getLogger(KAFKA).level
    yield
    root.handlers[:] = before[0]
    event_log.LOGGER.setLevel(before[1])
    logging.getLogger(KAFKA).setLevel(before[2])


FIELDS = {
    "why": 'a "quoted" = b\nnext',
    "epoch": 7,
    "http": None,
    "empty": "",
    "views": ["a", "b c"],
    "like": "12",
    "on": True,
}


@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_said_parses_back(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure(as_json=as_json)
    say("view_error", **FIELDS)
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    found = json.loads(line) if as_json else parse(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(found.pop("time")))
    assert (found.pop("level"), found.pop("event")) == ("error", "view_error")
    assert {k: json.loads(v) if k == "views" and isinstance(v, str) else v for k, v in found.items()} == FIELDS


@given(st.text())
def test_any_text_parses_back(text: str) -> None:
    assert parse(f"a={_value(text)} b=1") == {"a": text, "b": 1}


def test_an_event_that_is_not_in_the_list_is_refused() -> None:
    with pytest.raises(KeyError):
        say("something")


def test_every_event_that_the_sidecar_says_is_in_the_list_and_none_is_dead() -> None:
    text = "".join(p.read_text() for p in (ROOT / "sidecar").rglob("*.py") if p.name != "events.py")
    said = set(re.findall(r'\bsay\(\s*"(\w+)"', text)) | set(re.findall(r'yield \{"event": "(\w+)"', text))
    said |= set(re.findall(r'_facts\.append\(\s*\{"event": "(\w+)"', text))
    said |= {"view_fresh", "view_late", "view_stale", "kafka_client", "library", "fenced", "failed"}
    assert said == EVENTS.keys()
    assert {e.ends for e in EVENTS.values() if e.ends} <= EVENTS.keys()


def test_a_flood_of_a_client_is_one_line_with_its_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("headrace.sidecar.process.event_log.time.monotonic", lambda: now)
    configure(as_json=True)
    logger = logging.getLogger(KAFKA)
    for attempt in range(2471):
        logger.error("FAIL [rdkafka#consumer-1]: Connect to 127.0.0.1:9092 failed (after %dms)", attempt)
    now += 61
    logger.error("FAIL [rdkafka#consumer-1]: Connect to 127.0.0.1:9092 failed (after %dms)", 3)
    logger.error("another line")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(e["event"], e.get("left_out")) for e in lines] == [
        ("kafka_client", None),
        ("kafka_client", 2470),
        ("kafka_client", None),
    ]
    assert "Connect to" in lines[0]["message"]


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys; import headrace.sidecar.process.event_log; print({'numpy', 'pyarrow', 'numba'} & sys.modules.keys())"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
