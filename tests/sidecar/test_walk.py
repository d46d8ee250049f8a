"""What a user does by the command line when something is wrong on a running stack, and what is said: schema changes, dead
letters, resync, a view followed, passwords that are not right."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sidecar.process import PATIENCE
from tests.sidecar.real import Real, real

DDL = (
    "create table item (id int primary key, v int not null, kind text, note text)",
    "create table gauge (id int primary key, level int)",
    "create table keyed (id int primary key, w int)",
    "insert into item select i, i, 'kind ' || i % 3, 'note ' || i from generate_series(1, 30) i",
    "insert into gauge select i, i from generate_series(1, 10) i",
    "insert into keyed select i, i from generate_series(1, 10) i",
)
VIEWS = {
    "values_": "select id, v from item",
    "by_kind": "select kind, count(*) as n from item group by kind",
    "notes": "select id, note from item",
    "levels": "select sum(level) as level from gauge",
    "keys": "select count(*) as n, sum(w) as w from keyed",
}
WRONG = "a-wrong-password-c7f1"


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def but(*names: str) -> dict[str, str]:
    return {name: text for name, text in VIEWS.items() if name not in names}


@pytest.mark.timeout(900)
def test_columns_that_come_and_go(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    shop.configure(VIEWS, of_source={"database": source.url})
    shop.start()
    source.run("alter table item add column more text default 'x'", "update item set v = v + 1 where id < 5")
    source.run("insert into item values (100, 100, 'kind 1', 'new', 'more')")
    shop.equal(source, VIEWS)
    assert shop.in_error() == set()

    source.run("alter table item drop column note", "update item set v = v + 1 where id < 9")
    shop.until(lambda: shop.in_error() == {"notes"}, "the view that names it stands")
    source.run("alter table item rename column kind to sort", "insert into item values (101, 5, 'kind 2', 'more')")
    shop.until(lambda: shop.in_error() == {"notes", "by_kind"}, "so does the view of the other one")
    source.run("alter table gauge alter column level type text", "update gauge set level = 'high' where id = 3")
    shop.until(lambda: shop.in_error() == {"notes", "by_kind", "levels"}, "and the one over another type")
    shop.equal(source, but("notes", "by_kind", "levels"))
    lost = {(c["table"], c["column"]): c for c in shop.status()["sources"][0]["lost"]}
    assert set(lost) == {("public.item", "note"), ("public.item", "kind"), ("public.gauge", "level")}
    for (table, column), one in lost.items():
        assert one["topic"] == f"{source.name}.{table}"
        error = next(v["error"] for v in shop.status()["views"] if v["error"] and f"column={column}" in v["error"])
        for place in (f"table={table}", f"topic={one['topic']}", "partition=0", f"offset={one['offset']}"):
            assert place in error
    told = shop.command("status").stdout
    assert "in error" in told

    shop.kill()
    shop.start()
    assert shop.in_error() == {"notes", "by_kind", "levels"}, "a restart keeps it so"
    changed = {
        **VIEWS,
        "notes": "select id, v + 1 as note from item",
        "by_kind": "select v % 3 as kind, count(*) as n from item group by v % 3",
    }
    shop.declare(changed)
    applied = shop.command("apply", "--json")
    assert applied.returncode == 0, applied.stdout
    shop.until(lambda: shop.in_error() == {"levels"}, "the changed views go on")
    shop.equal(source, {n: t for n, t in changed.items() if n != "levels"})
    source.run(
        "alter table gauge alter column level type int using id", "update gauge set level = level + 1 where id = 1"
    )
    resynced = shop.command_json("resync", "public.gauge")
    assert resynced["code"] == 0, resynced
    shop.until(lambda: shop.in_error() == set(), "all go on")
    shop.equal(source, changed)
    assert shop.stop() == 0


def follow(shop: Real, view: str, *words: str) -> tuple[list[dict[str, Any]], int]:
    """The rows that a follower is given up to the first place to go on from, and that place."""
    line = [sys.executable, "-m", "sidecar.cli", "tail", view, "--json", *words, "--config", str(shop.config)]
    rows: list[dict[str, Any]] = []
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as tail:
        watchdog = threading.Timer(PATIENCE, tail.kill)
        watchdog.start()
        assert tail.stdout is not None
        resume = None
        while resume is None or not rows:
            body = json.loads(tail.stdout.readline() or "null")
            assert body is not None, "the follower ended"
            rows += [body] if "row" in body else []
            resume = body.get("resume")
        watchdog.cancel()
        tail.kill()
    return rows, resume


@pytest.mark.timeout(900)
def test_dead_letters_resync_and_a_view_followed(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    shop.configure(VIEWS, of_source={"database": source.url, "on_undecodable": "dead_letter"})
    shop.start()
    rows, resume = follow(shop, "levels")
    assert [(r["row"], r["diff"]) for r in rows] == [({"level": 55}, 1)]
    source.run("update gauge set level = level + 1 where id = 2")
    rows, _ = follow(shop, "levels", "--from", str(resume))
    assert sorted((int(r["row"]["level"]), r["diff"]) for r in rows) == [(55, -1), (56, 1)]
    refused = shop.command("tail", "levels", "--from", "999999")
    assert refused.returncode == 4
    assert "999999" in refused.stderr
    assert shop.command("tail", "nothing").returncode == 4

    assert shop.command_json("deadletters", "list") == {"letters": [], "code": 0}
    source.run("alter table keyed alter column id type text", "insert into keyed values ('abc', 7)")
    shop.until(lambda: len(shop.command_json("deadletters", "list")["letters"]) == 1, "it is set aside")
    source.run("update item set v = v + 1", "insert into keyed values ('12', 8)")
    shop.until(lambda: len(shop.command_json("deadletters", "list")["letters"]) == 2, "so is the next one")
    first, second = shop.command_json("deadletters", "list")["letters"]
    assert first["table"] == "public.keyed"
    assert first["topic"] == f"{source.name}.public.keyed"
    shop.equal(source, but("keys"))
    assert shop.in_error() == set()
    assert "abc" not in shop.command("deadletters", "list").stdout
    told = shop.command_json("deadletters", "replay")
    assert told["code"] == 0, told
    assert {x["outcome"] for x in told["letters"]} == {"refused"}
    assert all(x["why"] for x in told["letters"])
    unsaid = shop.command("deadletters", "discard")
    assert (unsaid.returncode, "--all" in unsaid.stderr) == (5, True)
    assert shop.command_json("deadletters", "discard", "nothing/0/9")["code"] != 0
    assert shop.command_json("deadletters", "discard", first["id"])["discarded"] == [first["id"]]
    assert shop.command_json("deadletters", "discard", "--all")["discarded"] == [second["id"]]
    assert shop.command_json("deadletters", "list")["letters"] == []

    with psycopg.connect(source.url, autocommit=True) as db:
        db.execute(f'alter publication "{source.slot}" drop table public.gauge')
        db.execute("update gauge set level = 1000 where id = 1")
        db.execute("delete from gauge where id = 2")
        db.execute(f'alter publication "{source.slot}" add table public.gauge')
    told = shop.command_json("resync", "public.gauge")
    assert [told[k] for k in ("code", "added", "changed", "removed")] == [0, 0, 1, 1]
    shop.equal(source, but("keys"))
    assert "public.gauge" in shop.command("resync", "public.gauge").stdout
    unknown = shop.command("resync", "public.nothing")
    assert unknown.returncode == 5
    assert "public.nothing" in unknown.stderr
    assert shop.stop() == 0
    assert shop.command("resync", "public.gauge", "--timeout", "0.2").returncode == 5
    assert shop.command("tail", "levels").returncode == 5


@pytest.mark.timeout(900)
def test_a_password_that_is_not_right_is_said_and_not_shown(shop: Real) -> None:
    source = shop.source(shop.name, DDL)
    facts = psycopg.conninfo.conninfo_to_dict(source.url)
    wrong = source.url.replace(str(facts["password"]), WRONG)
    place = f"{facts['host']}:{facts['port']}/{source.dbname}"
    shop.configure(VIEWS)
    right, sink = shop.sink_url, shop.sink_url.replace(str(facts["password"]), WRONG)
    shop.configure(
        VIEWS, sinks=[{"name": "warehouse", "type": "postgres", "url": sink}, {"name": "bus", "type": "kafka"}]
    )
    assert shop.start(wait=False).wait(240) == 5
    told = shop.log()
    for word in (
        "password authentication failed",
        "sink=warehouse",
        f"database={facts['host']}:{facts['port']}/",
        "url",
    ):
        assert word in told
    shop.sink_url = right
    shop.configure(VIEWS)
    shop.start()
    words = {
        "resync": ("resync", "public.item", "--from", wrong), "audit": ("audit", "--from", wrong),
        "validate": ("validate", "--against", wrong),
    }  # fmt: skip
    for what, line in words.items():
        for as_json in ((), ("--json",)):
            said = shop.command(*line, *as_json)
            text = said.stdout + said.stderr
            assert said.returncode != 0, what
            assert "password authentication failed" in text, (what, text)
            assert place in text, (what, text)
            told += text
    new = [sys.executable, "-m", "sidecar.cli", "init", "--from", wrong, "--folder", str(shop.folder / "new")]
    said = subprocess.run(new, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert said.returncode == 3
    assert "password authentication failed" in said.stderr
    told += said.stdout + said.stderr

    assert WRONG not in told + shop.log() + (shop.get("/status") or b"").decode()
    assert shop.stop() == 0
