"""The log of a run: one line an event on standard error, in logfmt or JSON, by the standard library's logging.

Invariant: a line has UTC time, level and event first, and its fields parse back to what was said. Lines of librdkafka and
of other libraries come through the same writer, those that repeat at most once a minute. Called by the host, the command
and whatever ends a run; loads nothing heavy.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from headrace.sidecar.process.events import EVENTS

LOGGER = logging.getLogger("headrace.events")
KAFKA = "headrace.kafka"
"""The logger that librdkafka's clients are given."""
REPEAT_SECONDS = 60.0
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_PLAIN = re.compile(r"[^\s=\"\\]+\Z")
_FIELD = re.compile(r'([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)(?: |$)')
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")


def say(event: str, **fields: object) -> None:
    """Write one event of `events.EVENTS`, which tells its level, and its fields. Raises KeyError for another name."""
    level = _LEVELS[EVENTS[event].level]
    logger = LOGGER if LOGGER.handlers or logging.getLogger().handlers else _started()
    logger.log(level, event, extra={"event": event, "fields": fields})


def configure(*, as_json: bool) -> None:
    """From here on all loggers write to standard error: JSON lines, or logfmt. Called once, before anything is said."""
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, _Errors)]:
        root.removeHandler(handler)
    handler = _Errors()
    handler.setFormatter(_Json() if as_json else _Logfmt())
    handler.addFilter(Repeats())
    root.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    logging.getLogger(KAFKA).setLevel(logging.INFO)


def _started() -> logging.Logger:
    configure(as_json=False)
    return LOGGER


def parse(line: str) -> dict[str, object]:
    r"""The fields of a line in logfmt.

    >>> parse('level=info event=running why="a \\"b\\"" epoch=7 http=null')
    {'level': 'info', 'event': 'running', 'why': 'a "b"', 'epoch': 7, 'http': None}
    """
    found: dict[str, object] = {}
    for name, text in _FIELD.findall(line.rstrip("\n")):
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def facts(record: logging.LogRecord) -> Mapping[str, object]:
    """Time, level, event and fields of a record, whichever library wrote it."""
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    event = getattr(record, "event", "kafka_client" if record.name == KAFKA else "library")
    fields: dict[str, object] = dict(getattr(record, "fields", {}))
    if not hasattr(record, "event"):
        fields |= {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["error"] = logging.Formatter().formatException(record.exc_info)
    if left_out := getattr(record, "left_out", 0):
        fields["left_out"] = left_out
    return {"time": moment, "level": record.levelname.lower(), "event": event, **fields}


class Repeats(logging.Filter):
    """Lets a line of a library pass once a minute: lines that differ in numbers only are the same line."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written; it then carries how many like it were not."""
        if hasattr(record, "event"):
            return True
        alike = (record.name, record.levelno, _VARYING.sub("#", record.getMessage())[:160])
        since, left_out = self._seen.get(alike, (float("-inf"), 0))
        now = time.monotonic()
        if now - since < REPEAT_SECONDS:
            self._seen[alike] = (since, left_out + 1)
            return False
        if len(self._seen) > 1000:
            self._seen.clear()
        self._seen[alike] = (now, 0)
        record.left_out = left_out
        return True


class _Errors(logging.Handler):
    """To standard error, as it is when a line is written."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more: the run goes on
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(facts(record), default=str)


class _Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_value(value)}" for name, value in facts(record).items())


def _value(value: object) -> str:
    """A value that `parse` reads back: text is quoted where it has a space or would be read as something else."""
    if not isinstance(value, str):
        text = json.dumps(value, default=str)
        return text if _PLAIN.match(text) else json.dumps(value if isinstance(value, str) else text)
    if _PLAIN.match(value):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False)
