"""`python -m tests.crash.fuzz --records N`: mutations of Debezium's own records through the decoder and the assembler.

Mutated records stand among whole ones in runs of one topic. Always: every record becomes rows, a mark, or an `Undecodable` that
says topic, partition and offset, without any of the record's values; the whole ones among them become what they are alone; what
is decoded passes the assembler; nothing raises but named errors, and nothing takes long.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from headrace.connectors.changes import Decoded, MessageBatch
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.connectors.formats.recording import Record, read_records
from headrace.connectors.formats.table_specs import Encodings, TableSpec
from headrace.connectors.formats.topic_names import table_topic
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.intake.source_intake import UndecodableError
from headrace.sidecar.intake.table_upserts import upserts
from headrace.sidecar.transactions.debezium import TransactionAssembler
from tests.crash.counts import write
from tests.crash.record import COLUMNS, FILE, KEYS

CANARY = "canary-7f3a"
"""Stands in mutated values; no error may hold it."""
RUN = 24
USES = 50
"""Runs that one decoder sees."""
SLOW_SECONDS = 2.0
"""Processor time that a run may take."""
PREFIXES = ("plain", "typed")

Node = Any
_EXTREMES: Sequence[Callable[[random.Random], Node]] = (
    *(lambda _, value=value: value for value in (  # type: ignore[misc]
        None, True, 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 1.5, 1e308, -0.0, "", CANARY, "\x00" + CANARY, "1e999999999",
        "-1e-999999999", "9" * 200, "NaN", "-Infinity", "2024-02-30T25:61:00Z", "P9999999999Y", "PT1E999999999S", "=!/+",
        "id:1:2", "m", "t", "d", "__debezium_unavailable_value", "\U0001f600" * 3,
    )),
    lambda _: [], lambda _: {}, lambda _: [2], lambda _: {"canary": CANARY}, lambda _: [[[[CANARY]]]],
    lambda _: {"scale": -999999999, "value": "AQ=="}, lambda draw: draw.choice("cuartdm"),
    lambda draw: draw.randrange(-(2**63), 2**63), lambda draw: CANARY * draw.choice((1, 1, 1, 1, 1, 5000)),
)  # fmt: skip


def schema(table: str) -> Schema:
    """Of a recorded table."""
    key = KEYS.get(table)
    columns = [Column(name, DataType.parse(kind), name not in (key or ())) for name, kind in COLUMNS[table]]
    return Schema.of(columns, key)


def mutated(value: bytes, draw: random.Random) -> bytes:
    """One mutation: of the bytes, or of the document and then of the bytes, rarely."""
    if draw.random() < 0.7:
        try:
            return _of_document(value, draw)
        except orjson.JSONEncodeError:
            return value[: len(value) // 2]
    return _of_bytes(value, draw)


def _of_bytes(value: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(value) + 1)
    kind = draw.randrange(10)
    if kind == 0:
        return value[:at]
    if kind == 1 and value:
        at = min(at, len(value) - 1)
        return value[:at] + bytes((value[at] ^ 1 << draw.randrange(8),)) + value[at + 1 :]
    if kind == 2:
        return (
            value[:at]
            + draw.choice((b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\\ud800", b'"', b"}", b"9" * 40))
            + value[at:]
        )
    if kind == 3:
        return value[:at] + value[at + draw.randrange(1, 20) :]
    if kind == 4:
        return value[:at] + value[max(0, at - 30) : at] + value[at:]
    if kind == 5:
        return draw.choice(
            (b"", b"null", b"[]", b"{}", b"0", b'""', b"\x00", b" ", b"[" * 2000, b'{"a":' * 5000, b"[" * 300_000)
        )
    if kind == 6:
        return re.sub(
            rb"-?\d+",
            lambda m: m[0] if draw.random() < 0.8 else draw.choice((b"1e400", b"-0", b"1.0", b"00", b"9" * 30)),
            value,
        )
    if kind == 7:
        name = draw.choice(re.findall(rb'"[a-z_A-Z]+":', value) or [b'"op":'])
        return value.replace(name, name + draw.choice((b"null,", b'"x",', b"1,")) + name, 1)
    if kind == 8:
        return b" " * draw.choice((1, 5000)) + value + draw.choice((b"", b"\n", b"x", b"\x00"))
    return value.replace(b"null", draw.choice((b"nul", b"NaN", b"{}", b"[null]", b'"null"')), draw.randrange(1, 3))


def _of_document(value: bytes, draw: random.Random) -> bytes:
    doc = orjson.loads(value)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        found = _place(doc, draw)
        if found is None:
            return orjson.dumps(draw.choice(_EXTREMES)(draw))
        node, key = found
        kind = draw.randrange(6)
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(key, str):
            node[draw.choice((key.upper(), key + "\x00", key[:-1], CANARY))] = node.pop(key)
        elif kind == 2:
            other, place = _place(doc, draw) or (node, key)
            if not isinstance(other[place], (dict, list)):
                node[key] = other[place]
        else:
            node[key] = draw.choice(_EXTREMES)(draw)
    return orjson.dumps(doc)


def _place(doc: Any, draw: random.Random) -> tuple[Any, Any] | None:
    """A container somewhere in a document, and a key of it; None where there is none."""
    found = None
    while isinstance(doc, (dict, list)) and doc:
        key = draw.choice(list(doc)) if isinstance(doc, dict) else draw.randrange(len(doc))
        found, doc = (doc, key), doc[key]
        if draw.random() < 0.2:
            break
    return found


@dataclass
class Tally:
    """Counts of records by what became of them, and what was wrong."""

    became: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    records: int = 0

    def tell(self, text: str) -> None:
        if len(self.wrong) < 50:
            self.wrong.append(text)
        self.became["WRONG"] += 1


class Fuzz:
    """Runs over the recorded topics. `known`: of each record alone, what it becomes."""

    def __init__(self, path: Path, prefixes: Sequence[str] = PREFIXES) -> None:
        self.tally = Tally()
        self.by_topic: dict[str, list[Record]] = {}
        for record in read_records(path):
            self.by_topic.setdefault(record.topic, []).append(record)
        self.topics = sorted(self.by_topic)
        self._formats: dict[tuple[str, bool], tuple[int, DebeziumFormat | None]] = {}
        self.tables = {t: TableSpec(t, schema(t)) for t in COLUMNS}

    def format_of(self, topic: str, declared: bool) -> DebeziumFormat:
        """A decoder of the topic's source: with declared tables, or one that learns them; made anew now and then."""
        prefix = next(p for p in PREFIXES if topic.split(".")[0] == p or topic.endswith(f".{p}"))
        uses, known = self._formats.get((prefix, declared), (0, None))
        if known is None or uses >= USES:
            uses, known = 0, self._fresh_format(prefix, declared)
        self._formats[prefix, declared] = (uses + 1, known)
        return known

    def _fresh_format(self, prefix: str, declared: bool) -> DebeziumFormat:
        return DebeziumFormat(
            prefix, prefix, self.tables if declared else None, Encodings(time_precision_mode="microseconds"),
            carried=not declared, notification_topic=f"{prefix}.notifications",
        )  # fmt: skip

    def run(self, seed: str) -> None:
        """One run of messages of one topic, some of them mutated."""
        draw = random.Random(seed)
        topic = draw.choice(self.topics)
        pool = self.by_topic[topic]
        start = draw.randrange(max(1, len(pool) - RUN))
        chosen = pool[start : start + draw.randrange(1, RUN)]
        declared = draw.random() < 0.7 or topic.startswith("plain")
        values: list[bytes | None] = []
        keys: list[bytes | None] = []
        touched: set[int] = set()
        for at, record in enumerate(chosen):
            value, key = record.value, record.key
            if value is not None and draw.random() < 0.4:
                value = mutated(value, draw)
                touched.add(at)
            if key is not None and draw.random() < 0.05:
                key = mutated(key, draw)
                touched.add(at)
            values.append(value)
            keys.append(key)
        offsets = np.arange(1000, 1000 + len(chosen), dtype=np.int64)
        messages = MessageBatch(topic, 3, offsets, keys, values, np.zeros(len(chosen), np.int64))
        began = time.thread_time()
        try:
            format_ = self.format_of(topic, declared)
            if not format_.wants(topic):
                return
            self.tally.records += len(touched)
            decoded = format_.decode(messages)
            self._judge(seed, messages, decoded, touched, declared)
            self._assemble(seed, messages, decoded, declared)
        except HeadraceError as error:
            self.tally.tell(f"seed {seed}, {topic}: decode raised {error}")
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.tally.tell(f"seed {seed}, {topic}: bare {type(error).__name__}: {str(error)[:200]}")
        if time.thread_time() - began > SLOW_SECONDS:
            self.tally.tell(f"seed {seed}, {topic}: took {time.thread_time() - began:.1f} s")

    def _judge(self, seed: str, messages: MessageBatch, decoded: Decoded, touched: set[int], declared: bool) -> None:
        rows = {o for c in decoded.changes for o in c.offsets.tolist()}
        marks = {m.offset for m in decoded.marks}
        bad = {u.offset: u for u in decoded.undecodable}
        for at, offset in enumerate(messages.offsets.tolist()):
            value = messages.values[at]
            if offset in bad:
                self._judge_refusal(seed, messages, bad[offset], at in touched, declared)
            elif offset in rows or offset in marks:
                self.tally.became["row" if offset in rows else "mark"] += at in touched
            elif value is not None and not _nothing(value, messages.topic):
                self.tally.tell(f"seed {seed}, {messages.topic}: silently skipped {value[:300]!r}")
            else:
                self.tally.became["nothing"] += at in touched

    def _judge_refusal(self, seed: str, messages: MessageBatch, bad: Any, touched: bool, declared: bool) -> None:
        text = str(UndecodableError(bad.reason, table=bad.table, topic=bad.topic, partition=bad.partition,
                                    offset=bad.offset, hint=bad.hint))  # fmt: skip
        if not bad.reason or (bad.topic, bad.partition) != (messages.topic, messages.partition):
            self.tally.tell(f"seed {seed}: an error without its place: {text}")
        if messages.topic.startswith("plain") and CANARY in text:
            self.tally.tell(f"seed {seed}: an error that shows a value: {text[:300]}")
        if not touched and declared:
            self.tally.tell(f"seed {seed}, {messages.topic}: a whole record beside mutated ones is refused: {text}")
        self.tally.became["undecodable"] += touched

    def _assemble(self, seed: str, messages: MessageBatch, decoded: Decoded, declared: bool) -> None:
        """What is decoded goes through an intake's assembler and becomes upserts, or is refused by name."""
        assembler = TransactionAssembler({t: t for t in COLUMNS}, in_order=True)
        try:
            assembler.accept(decoded)
            assembler.finish()
            done = assembler.complete()
            assembler.pending_positions()
            assembler.waiting()
            if declared:
                upserts(list(enumerate(done, 1)), {t: s.schema for t, s in self.tables.items()})
        except HeadraceError as error:
            where = error.where
            if "topic" not in where and "table" not in where:
                self.tally.tell(f"seed {seed}: the assembler names no place: {error}")


def _nothing(value: bytes, topic: str) -> bool:
    """Whether a record rightly leaves nothing: null, a logical message, a notification of something else, another's table."""
    try:
        doc = orjson.loads(value)
    except ValueError:
        return False
    if isinstance(doc, dict) and doc.keys() == {"schema", "payload"}:
        doc = doc["payload"]
    if doc is None or topic in PREFIXES:
        return True
    if not isinstance(doc, dict):
        return False
    return topic.endswith((".notifications", ".heartbeat")) or _another_table(doc.get("source"), topic)


def _another_table(source: Any, topic: str) -> bool:
    """Whether a record is of a table that is not wanted, whose name Debezium makes the same topic of."""
    if not isinstance(source, dict) or not all(isinstance(source.get(k), str) for k in ("name", "schema", "table")):
        return False
    table = f"{source['schema']}.{source['table']}"
    return table not in COLUMNS and table_topic(source["name"], table) == topic


def fuzz(records: int, seed: int, path: Path = FILE, seconds: float = float("inf")) -> Tally:
    """At least so many mutated records, or as many as the time allows."""
    made = Fuzz(path)
    number, began = 0, time.monotonic()
    while made.tally.records < records and time.monotonic() - began < seconds:
        made.run(f"{seed}/{number}")
        number += 1
        if number % 20_000 == 0:
            print(f"{made.tally.records} records, {dict(made.tally.became)}", file=sys.stderr, flush=True)
    return made.tally


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fuzz", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recording", type=Path, default=FILE)
    parser.add_argument("--one", help="play one seed (as errors tell it) again")
    asked = parser.parse_args()
    began = time.monotonic()
    if asked.one:
        made = Fuzz(asked.recording)
        made.run(asked.one)
        tally = made.tally
    else:
        tally = fuzz(asked.records, asked.seed, asked.recording, 60 * asked.minutes)
    for text in tally.wrong:
        print(text, file=sys.stderr)
    facts = {"records": tally.records, **{k: tally.became[k] for k in ("row", "mark", "undecodable", "nothing")},
             "wrong": tally.became["WRONG"], "seconds": round(time.monotonic() - began)}  # fmt: skip
    if not asked.one:
        write("fuzz", {"seed": asked.seed, **facts})
    print(
        f"fuzz: {'failed' if facts['wrong'] else 'ok'} seed={asked.seed} "
        + " ".join(f"{k}={v}" for k, v in facts.items())
    )
    sys.exit(1 if facts["wrong"] else 0)


if __name__ == "__main__":
    main()
