"""A walk by the command line, as a user goes who has a database: from `init` to a view that is followed, changed, audited,
mended, replayed and left; each command as people see it and with `--json`.

Always: what a command says in both ways is the same; what is refused is told with its place and a remedy.
One file for one way (`make walk`): a chapter begins where the last one has ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.sidecar.support.process import PATIENCE
from tests.sidecar.support.real import Real, Source

DDL = (
    "create schema headrace",
    "create table customers (id int primary key, name text not null, city text)",
    "create table orders (id bigint primary key, customer_id int not null references customers, total numeric(12,2))",
    "create table keyed (id int primary key, w int)",
    "insert into customers select i, 'customer ' || i, 'city ' || i % 3 from generate_series(1, 20) i",
    "insert into orders select i, 1 + i % 20, i * 1.25 from generate_series(1, 60) i",
    "insert into keyed select i, i from generate_series(1, 5) i",
)
BY_CITY = "select c.city, count(*) as n, sum(o.total) as total from orders o join customers c on c.id = o.customer_id\n" \
          "      group by c.city"  # fmt: skip
BIG = "select id, total from orders where total > 50"
BIGGER = "select id, total + 1 as total from orders where total > 60"
KEYS = "select count(*) as n, sum(w) as w from keyed"
VIEWS = """\
version: 1
views:
  - name: by_city
    sinks: [warehouse, bus]
    sql: |
      {by_city}
    tests:
      - name: a city is counted
        given:
          public.customers: [{{id: 1, name: a, city: x}}]
          public.orders: [{{id: 1, customer_id: 1, total: 2}}]
        expect: [{{city: x, n: {n}, total: "2.00"}}]
  - {{name: big, sinks: [warehouse], key: [id], sql: "{big}"}}
  - {{name: keys, sinks: [warehouse], sql: "{keys}"}}
"""


class Walk(Real):
    """What is done by the command line, with the sidecar's files in `folder`."""

    def line(self, *words: str, where: bool = True) -> list[str]:
        return [
            sys.executable,
            "-m",
            "headrace.sidecar.cli.app",
            *words,
            *(("--config", str(self.config)) if where else ()),
        ]

    def both(self, *words: str, code: int = 0, where: bool = True) -> tuple[str, list[dict[str, Any]]]:
        """What people read, and the objects that programs do. The two run side by side."""
        lines = [self.line(*words, where=where), self.line(*words, "--json", where=where)]
        env = {**os.environ, "COLUMNS": "200"}
        started = [
            subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) for one in lines
        ]
        try:
            (out, err), (objects, more) = (process.communicate(timeout=PATIENCE) for process in started)
        finally:
            for process in started:
                process.kill()
                process.wait()
        told = f"{out}{err}"
        self.canary.look(f"{told} {objects} {more}".encode(), f"headrace {words[0]}")
        assert [p.returncode for p in started] == [code, code], (words, told, objects, more)
        return told, [json.loads(each) for each in objects.splitlines()]

    def one(self, *words: str) -> tuple[str, dict[str, Any]]:
        """The same of a command that gives one object."""
        told, [body] = self.both(*words)
        return told, body

    def refused(self, *words: str, code: int, kind: str, **facts: object) -> dict[str, Any]:
        """The error of a command that leaves with `code`: with these facts, and a remedy; people read all of it."""
        where = facts.pop("where_", True)
        told, objects = self.both(*words, code=code, where=bool(where))
        error: dict[str, Any] = objects[-1]["error"]
        assert error["code"] == kind
        assert error["hint"], error
        assert {name: error["where"].get(name) for name in facts} == facts
        place = ("file", "line", "column") if {"file", "line"} <= error["where"].keys() else ()
        at = ":".join(str(error["where"][k]) for k in place if k in error["where"])
        others = (
            f"{k}={v}" for k, v in error["where"].items() if k not in (*place, "epoch")
        )  # the two runs may be an epoch apart
        for word in (error["what"], error["hint"], at, *others):
            assert word in told, (word, told)
        assert "Traceback" not in told
        return error

    def write(self, *, by_city: str = BY_CITY, big: str = BIG, n: int = 1) -> None:
        text = VIEWS.format(by_city=by_city, big=big, keys=KEYS, n=n)
        (self.folder / "views" / "shop.yaml").write_text(text)

    def are(self, source: Source, **views: str) -> None:
        """The views of the sink are the source's answers."""
        self.equal(source, {"by_city": BY_CITY, "big": BIG, "keys": KEYS} | views)

    @contextmanager
    def followed(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """`headrace tail`, which must say something before long."""
        # a test run in the background was told to ignore Ctrl-C, and its children with it
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        tail = subprocess.Popen(
            self.line("tail", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        signal.signal(signal.SIGINT, before)
        watchdog = threading.Timer(PATIENCE, tail.kill)
        watchdog.start()
        try:
            yield tail
        finally:
            watchdog.cancel()
            watchdog.join()
            tail.kill()
            tail.communicate()


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Walk]:
    made = Walk(stack, tmp_path, unique)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_from_a_database_to_views_that_are_kept(shop: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    source = begun(shop)
    monkeypatch.setenv("SOURCE_URL", source.url)
    monkeypatch.delenv("WAREHOUSE_URL", raising=False)
    refused_before_it_runs(shop)
    shop.sink_url = shop.database(shop.stack.postgres, f"{shop.name}_sink")
    monkeypatch.setenv("WAREHOUSE_URL", shop.sink_url)
    shop.start()
    shop.are(source)
    asked(shop, source)
    replayed(shop, source)
    changed(shop, source)
    set_aside(shop, source)
    mended(shop, source)
    left(shop, source)


def begun(shop: Walk) -> Source:
    """`init`, `validate`, `test`."""
    url = shop.database(shop.stack.postgres, shop.name)
    with psycopg.connect(url, autocommit=True) as db:
        for statement in DDL:
            db.execute(statement)
    facts = psycopg.conninfo.conninfo_to_dict(url)
    stated = (str(facts["host"]), int(facts["port"] or 0))
    words = ["init", "--from", url, "--name", shop.name, "--folder", str(shop.folder), "--table", "public.*",
             "--kafka", shop.stack.kafka.bootstrap, "--connect", shop.stack.connect.url]  # fmt: skip
    source = shop.sources[shop.name] = Source(shop.name, url, stated, [], {})
    made = subprocess.run([*shop.line(*words, where=False), "--register"], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    for said in (
        "headrace.yaml",
        "public.orders",
        "Registered",
        "CREATE ROLE",
        "export WAREHOUSE_URL=",
        "headrace run",
    ):
        assert said in made.stdout, said
    error = shop.refused(*words, code=3, kind="init", where_=False)
    assert "headrace.yaml" in error["where"]["files"]
    assert "--force" in error["hint"]

    text = shop.config.read_text()
    commented = next(line for line in text.splitlines() if line.strip().startswith("# database:"))
    text = text.replace(commented, '    database: "${env:SOURCE_URL}"\n    on_undecodable: dead_letter')
    text = text.replace("topic_prefix: views.", f"topic_prefix: {shop.name}.views.")
    text = text.replace("http: 127.0.0.1:8088", f"http: {shop.http}\ncheckpoint: {{interval_seconds: 0.5}}")
    shop.config.write_text(text)
    (shop.folder / "views" / "example.yaml").unlink()
    return source


def refused_before_it_runs(shop: Walk) -> None:
    """Mistakes in files are told with file, line, field, value and remedy, and nothing is begun."""
    shop.write(big=BIG.replace("total >", "totl >"), n=2)
    error = shop.refused("validate", code=4, kind="view", view="big")
    assert str(error["where"]["file"]).endswith("shop.yaml")
    assert error["where"]["line"] == 14, "that of the SQL"
    assert "total" in error["hint"]
    shop.write(n=2)
    told, [failed] = shop.both("test", code=9)
    assert "a city is counted" in told
    assert (failed["passed"], failed["failed"]) == (0, 1)
    shop.write()
    assert shop.one("test")[1]["passed"] == 1
    right = shop.config.read_text()
    at = right.splitlines().index("engine: {workers: 1}                 # processes that share the work") + 1
    shop.config.write_text(right.replace("engine: {workers: 1}", "engine: {worker: 1}"))
    error = shop.refused("validate", code=3, kind="config", file=str(shop.config), line=at)
    assert "workers" in error["hint"]
    shop.config.write_text(right)

    told, body = shop.one("validate")
    assert [v["name"] for v in body["views"]] == ["by_city", "big", "keys"]
    assert "WAREHOUSE_URL" in told
    error = shop.refused("run", code=3, kind="config", file=str(shop.config), field="sinks[0].url")
    assert "WAREHOUSE_URL" in error["hint"]
    told, body = shop.one("plan")
    assert {v["action"] for v in body["views"]} == {"added"}
    assert (body["running"], body["tables_dropped"]) == (False, []), "nothing was read before"
    assert "no sidecar runs" in told
    shop.refused("status", code=5, kind="http")
    shop.refused("query", "select 1 as x", code=5, kind="control")


def asked(shop: Walk, source: Source) -> None:
    """`status`, `query`, `explain`, `audit`, `tail`."""
    told, body = shop.one("status")
    assert (body["name"], [v["name"] for v in body["views"]]) == (shop.name, ["by_city", "big", "keys"])
    assert "fresh" in told
    assert "in error" not in told
    told, body = shop.one("query", "select id, total from orders where id = 4")
    assert [(int(r["id"]), r["total"]) for r in body["rows"]] == [(4, "5.00")]
    assert "5.00" in told
    as_csv = shop.command("query", "select id, total from orders where id < 3 order by id", "--csv")
    assert as_csv.stdout == "id,total\n1,1.25\n2,2.50\n"
    error = shop.refused("query", "select nothing from orders", code=4, kind="view")
    assert "nothing" in error["what"]

    drawn = shop.folder / "by_city.svg"
    told, body = shop.one("explain", "by_city", "--why", "--svg", str(drawn))
    assert ET.parse(drawn).getroot().tag.endswith("svg")
    assert "Reduce by (city)" in told
    assert body["held"]
    assert shop.refused("explain", "by_cty", code=4, kind="view", view="by_cty")["hint"].count("by_city")

    told, body = shop.one("audit")
    assert (body["mismatches"], {v["state"] for v in body["views"]}) == (0, {"equal"})
    assert "0 mismatches" in told
    follow(shop, source)


def follow(shop: Walk, source: Source) -> None:
    """A view that is followed, by people until Ctrl-C, by programs from where they were."""
    with shop.followed("by_city") as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline().split() == ["epoch", "diff", "city", "n", "total"]
        rows = [tail.stdout.readline().split("\t")[1:3] for _ in range(3)]
        assert sorted(rows) == [["+1", f"city {i}"] for i in range(3)]
        source.run("update orders set total = 1000 where id = 3")
        assert sorted(tail.stdout.readline().split("\t")[1] for _ in range(2)) == ["+1", "-1"]
        tail.send_signal(signal.SIGINT)
        _, told = tail.communicate(timeout=PATIENCE)
        assert tail.returncode == 130, told
        assert "go on with: headrace tail by_city --from " in told
    start = told.split("--from ")[1].split()[0]
    source.run("update orders set total = 2000 where id = 3")
    diffs: list[int] = []
    with shop.followed("by_city", "--json", "--from", start) as tail:
        assert tail.stdout is not None
        while sum(abs(d) for d in diffs) < 2:
            body = json.loads(tail.stdout.readline() or "null")
            assert body is not None, "the follower ended"
            diffs += [body["diff"]] if "row" in body else []
    assert sorted(diffs) == [-1, 1], "the change that it had not been told, alone"
    with shop.followed("by_city", "--json", "--each", "--lag", "60") as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["whole"]
        [asked] = shop.one("status")[1]["each_transaction"]["asked_by"]
        assert (asked["who"], asked["lag_seconds"]) == ("tail of view by_city", 60)
        for total in range(3000, 3010):
            source.run(f"update orders set total = {total} where id = 3")
        changes: list[dict[str, Any]] = []
        begun = False
        while len(changes) < 20:
            body = json.loads(tail.stdout.readline() or "null")
            assert body is not None, "the follower ended"
            assert "error" not in body, body
            begun |= "resume" in body
            changes += [body] if begun and "row" in body else []
        assert len({body["epoch"] for body in changes}) == 10, "each transaction by itself"
        assert not any("first" in body for body in changes)
    some = shop.line("tail", "by_city", "--limit", "2")
    ended = subprocess.run(some, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 4), "the header, and all rows of the epoch"
    resume = ended.stderr.split("--from ")[1].strip()
    until = shop.line("tail", "by_city", "--from", resume, "--until", resume)
    assert subprocess.run(until, capture_output=True, check=False, timeout=PATIENCE).returncode == 0
    shop.refused("tail", "by_city", "--from", "999999", code=4, kind="tail", view="by_city", start=999999)
    shop.refused("tail", "by_cty", code=4, kind="tail")


def replayed(shop: Walk, source: Source) -> None:
    """What the topics hold, recorded, gives the same views with no server at all."""
    shop.are(source)
    recording = shop.folder / "recording.jsonl"
    tables = [f"{source.name}.public.{t}" for t in ("customers", "orders", "keyed")]
    recording.write_text(
        "".join(recorded(shop, [f"{source.name}.transaction", f"{source.name}.notifications", *tables]))
    )
    told, rows = shop.both("replay", str(recording))
    wanted, _ = shop.answer(source.url, BIG)
    held = [(int(r["row"]["id"]), r["row"]["total"]) for r in rows if r["view"] == "big"]
    assert sorted(held) == sorted((i, str(total)) for i, total in wanted)
    assert f"big: {len(held)} rows" in told
    recording.write_text("no JSON\n")
    error = shop.refused("replay", str(recording), code=8, kind="recording", line=1)
    assert error["where"]["file"] == str(recording)


def recorded(shop: Walk, topics: list[str]) -> list[str]:
    """A line of each record of topics of one partition, as they are now."""
    consumer = Consumer({"bootstrap.servers": shop.stack.kafka.bootstrap, "group.id": shop.name})
    found = []
    try:
        for topic in topics:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
            consumer.assign([TopicPartition(topic, 0, low)])
            at = low
            while at < high:
                for message in consumer.consume(500, timeout=1):
                    assert message.error() is None
                    at = int(message.offset() or 0) + 1
                    texts = [None if x is None else bytes(x).decode() for x in (message.key(), message.value())]
                    line = {
                        "topic": topic,
                        "partition": 0,
                        "offset": message.offset(),
                        "key": texts[0],
                        "value": texts[1],
                    }
                    found.append(json.dumps(line) + "\n")
    finally:
        consumer.close()
    return found


def changed(shop: Walk, source: Source) -> None:
    """`plan` and `apply` of a changed folder, a mistake in it, and SIGHUP."""
    assert shop.process is not None
    told, body = shop.one("plan")
    assert (body["changes"], body["running"]) == (False, True)
    assert "nothing to do" in told
    shop.write(big=BIGGER.replace("total >", "totl >"))
    error = shop.refused("plan", code=4, kind="view", view="big")
    told = shop.command_json("apply")  # one at a time: the second of two is refused
    assert (told["code"], told["error"]) == (4, error)
    shop.are(source)
    shop.write(big=BIGGER)
    told, body = shop.one("plan")
    assert {v["view"]: v["action"] for v in body["views"]} == {
        "by_city": "unchanged",
        "big": "changed",
        "keys": "unchanged",
    }
    assert "changed" in told
    applied = shop.command("apply")
    assert applied.returncode == 0, applied.stderr
    assert "in force since epoch" in applied.stdout
    shop.are(source, big=BIGGER)
    last = json.loads(shop.command("apply", "--json").stdout.splitlines()[-1])
    assert (last["event"], last["changes"]) == ("applied", False)

    shop.write()
    shop.process.send_signal(signal.SIGHUP)
    shop.until(lambda: shop.command_json("plan")["changes"] is False, "SIGHUP put the folder in force")
    shop.are(source)


def set_aside(shop: Walk, source: Source) -> None:
    """`deadletters`: the table goes on without records that cannot be decoded."""
    told, body = shop.one("deadletters", "list")
    assert body == {"letters": []}
    assert "0 dead letters" in told
    source.run("alter table keyed alter column id type text", "insert into keyed values ('abc', 7)")
    source.run("insert into keyed values ('b c', 8)", "update orders set total = 55 where id = 5")
    shop.until(lambda: len(shop.command_json("deadletters", "list")["letters"]) == 2, "both are set aside")
    shop.are(source, keys=f"{KEYS} where id in ('1', '2', '3', '4', '5')")
    assert shop.in_error() == set()
    told, body = shop.one("deadletters", "list", "--table", "public.keyed")
    first, second = body["letters"]
    assert (first["table"], first["topic"]) == ("public.keyed", f"{source.name}.public.keyed")
    assert first["id"] in told
    assert "abc" not in told + json.dumps(body), "values are not shown"
    assert shop.one("deadletters", "list", "--table", "public.orders")[1] == {"letters": []}
    told, body = shop.one("deadletters", "replay")
    assert [(x["outcome"], bool(x["why"])) for x in body["letters"]] == [("refused", True)] * 2
    assert "refused" in told
    assert "--all" in shop.refused("deadletters", "discard", code=5, kind="source")["hint"]
    error = shop.refused("deadletters", "discard", "nothing/0/9", code=5, kind="source", letter="nothing/0/9")
    assert "deadletters list" in error["hint"]
    assert shop.command_json("deadletters", "discard", first["id"])["discarded"] == [first["id"]]
    assert second["id"] in shop.command("deadletters", "discard", "--all").stdout
    assert shop.command_json("deadletters", "list")["letters"] == []


def mended(shop: Walk, source: Source) -> None:
    """`audit` names the views that a lost change made wrong, and `resync` mends them."""
    with psycopg.connect(source.url, autocommit=True) as db:
        db.execute(f'alter publication "{source.slot}" drop table public.orders')
        db.execute("delete from orders where id = 50")
        db.execute("update orders set total = 77 where id = 6")
        db.execute(f'alter publication "{source.slot}" add table public.orders')
    shop.passed(source)
    told, objects = shop.both("audit", "by_city", "big", code=9)
    assert {v["view"]: v["state"] for v in objects[0]["views"]} == {"by_city": "mismatch", "big": "mismatch"}
    assert objects[1]["error"]["hint"] in told
    assert "resync" in objects[1]["error"]["hint"]
    body = shop.command_json("resync", "public.orders")
    assert {k: body[k] for k in ("code", "added", "changed", "removed")} == {
        "code": 0, "added": 0, "changed": 1, "removed": 1,
    }  # fmt: skip
    assert shop.one("audit", "by_city", "big")[1]["mismatches"] == 0
    again = shop.command("resync", "public.orders")
    assert "public.orders" in again.stdout
    with psycopg.connect(source.url) as db:
        found = db.execute("select %s::pg_lsn <= pg_current_wal_insert_lsn()", (body["lsn"],)).fetchone()
    assert found == (True,)
    assert "As of LSN " + body["lsn"].partition("/")[0] in again.stdout
    shop.refused("resync", "public.nothing", code=5, kind="request")


def left(shop: Walk, source: Source) -> None:
    """It drains and leaves; whoever asks then is told so; it goes on where it was."""
    assert shop.stop() == 0
    for words, code, kind in (
        (("status",), 5, "http"), (("tail", "by_city"), 5, "control"), (("apply",), 5, "control"),
        (("resync", "public.orders", "--timeout", "0.2"), 5, "control"),
    ):  # fmt: skip
        assert "headrace run" in shop.refused(*words, code=code, kind=kind)["hint"]
    _, body = shop.one("plan")
    assert (body["running"], body["changes"], body["tables_dropped"]) == (False, False, [])
    source.run("insert into orders values (1000, 1, 99)")
    shop.start()
    shop.are(source, keys=f"{KEYS} where id in ('1', '2', '3', '4', '5')")
    assert shop.stop() == 0
