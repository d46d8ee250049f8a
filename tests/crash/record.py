"""`python -m tests.crash.record`: makes recording.jsonl.gz anew, Debezium's own records for the fuzz, on the embedded stack.

Two connectors over one database, without and with schemas (topics `plain.…` and `typed.…`): every column type that is read,
hostile names, primary-key changes, truncates, TOASTed values, a table without a key, rollbacks. Run by hand.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import time
import uuid
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition

from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from headrace.sidecar.devstack.stack import Stack

FILE = Path(__file__).with_name("recording.jsonl.gz")
TABLES = ("public.types", "public.plain", "public.crowd", 'public.odd "name;--')
TYPES = (
    ("id", "integer"), ("b", "boolean"), ("s", "smallint"), ("i", "integer"), ("l", "bigint"), ("r", "real"),
    ("d", "double precision"), ("n", "numeric(12,3)"), ("free", "numeric"), ("t", "text"), ("v", "varchar(20)"),
    ("day", "date"), ("at", "time"), ("ts", "timestamp"), ("tz", "timestamptz"), ("gap", "interval"), ("raw", "bytea"),
    ("u", "uuid"), ("j", "jsonb"), ("list", "integer[]"),
)  # fmt: skip
PLAIN = (("id", "integer"), ("v", "text"), ("n", "numeric(10,2)"))
CROWD = (("v", "integer"), ("w", "text"))
ODD = (("k e'y", "integer"), ('x"; drop', "text"))
COLUMNS = dict(zip(TABLES, (TYPES, PLAIN, CROWD, ODD), strict=True))
KEYS = {TABLES[0]: ["id"], TABLES[1]: ["id"], TABLES[3]: ["k e'y"]}

_TYPED = (
    "({i}, {b}, {i}, {i} * 1000, {i} * 10000000000, {i} / 7.0, 1e300 / {i}, {i} / 3.0, {i}::numeric ^ 30, 'äöü ☃ {i}', 'v', "
    "date '2024-02-29' + {i}, time '12:34:56.789', timestamp '2024-02-29 12:00' + interval '{i} s', "
    "timestamptz 'infinity', interval '1 mon {i} days 3 s', '\\x00ff{i:02x}', gen_random_uuid(), "
    """'{{"a": [1, null, "x"], "n": 1e3}}', array[{i}, null, 3])"""
)


def statements() -> list[list[str]]:
    """Transactions, one list each."""
    create = [
        "create table {} ({})".format(name.partition(".")[2] if '"' not in name else '"odd ""name;--"',
                                      ", ".join(f'"{c.replace(chr(34), chr(34) * 2)}" {t}' for c, t in columns))
        for name, columns in COLUMNS.items()
    ]  # fmt: skip
    keys = ["alter table types add primary key (id)", "alter table plain add primary key (id)",
            """alter table "odd ""name;--" add primary key ("k e'y")""", "alter table crowd replica identity full"]  # fmt: skip
    out = [create + keys, [f"insert into types values {_TYPED.format(i=i, b=i % 2 == 0)}" for i in range(1, 12)]]
    out.append(["insert into types (id) values (100)", "insert into crowd values (1, 'a'), (1, 'a'), (2, null)"])
    return out


def changes() -> list[list[str]]:
    """What happens while the connectors stream."""
    out = [[f"insert into plain values ({i}, repeat('p', {i}), {i}.5)", f"update types set t = 'changed {i}' where id = {i}"]
           for i in range(1, 30)]  # fmt: skip
    out += [
        ["insert into plain select 500, string_agg(md5(i::text), ''), 1 from generate_series(1, 400) i"],
        ["update plain set n = 2 where id = 500"], ["update plain set id = 501 where id = 500"],
        ["update types set id = id + 1000 where id < 4"], ["delete from types where id > 1000"],
        ["update crowd set w = 'b' where v = 2", "delete from crowd where v = 1"], ["truncate crowd"],
        [f"insert into types values {_TYPED.format(i=i, b='null')}" for i in range(50, 80)],
        ["""insert into "odd ""name;--" values (1, 'a'), (2, null)"""],
        ["""update "odd ""name;--" set "x""; drop" = E'tab\\there \\\\ "quoted" ''single''' where "k e'y" = 2"""],
        ["truncate plain, crowd"], ["insert into plain values (1, 'after', null)"],
    ]  # fmt: skip
    return out


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder, Stack(folder) as stack:
        with psycopg.connect(stack.postgres.url(), autocommit=True) as admin:
            admin.execute("create database recorded")
        url = stack.postgres.url("recorded")
        with psycopg.connect(url) as db:
            _run(db, statements())
            for statement in HEARTBEAT_DDL:
                db.execute(statement)
        host, port = stack.postgres_address
        facts = psycopg.conninfo.conninfo_to_dict(url)
        connection = Connection(host, port, str(facts["user"]), "recorded", str(facts.get("password", "")))
        for prefix, schemas in (("plain", False), ("typed", True)):
            tuning = Tuning(poll_ms=10, heartbeat_ms=1000, schemas=schemas)
            register(stack.connect.url, prefix, connector_config(prefix, connection, TABLES, tuning=tuning))
            stack.connect.wait_running(prefix, f"headrace_{prefix}")
        with psycopg.connect(url) as db:
            _run(db, changes())
            with db.transaction(force_rollback=True):
                db.execute("delete from types")
        time.sleep(4)
        lines = _topics(stack.kafka.bootstrap)
    with gzip.GzipFile(FILE, "wb", mtime=0) as file:
        file.writelines(json.dumps(line).encode() + b"\n" for line in lines)
    print(f"{len(lines)} records")


def _run(db: psycopg.Connection, transactions: list[list[str]]) -> None:
    for transaction in transactions:
        with db.transaction():
            for statement in transaction:
                db.execute(statement)


def _topics(bootstrap: str) -> list[dict[str, object]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
    try:
        topics = [t for t in consumer.list_topics(timeout=10).topics if t.split(".")[0] in ("plain", "typed")]
        topics += [t for t in consumer.list_topics(timeout=10).topics if t.startswith("__debezium-heartbeat")]
        consumer.assign([TopicPartition(t, 0, 0) for t in topics])
        found, end = [], time.monotonic() + 10
        while time.monotonic() < end:
            found += [m for m in consumer.consume(1000, 0.5) if m.error() is None]
    finally:
        consumer.close()
    found.sort(key=lambda m: (m.topic(), m.offset()))
    return [{"topic": m.topic(), "key": _text(m.key()), "value": _text(m.value())} for m in found]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


if __name__ == "__main__":
    main()
