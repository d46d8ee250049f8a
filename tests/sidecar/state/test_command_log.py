"""The command log: what a lost state folder took is done again; until then its table is unproven, and no wrong row is shown."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.commands import (
    Added,
    Command,
    Commands,
    CommandsError,
    Doubted,
    Identity,
    MemoryCommands,
    Partition,
    Replayed,
    Resynced,
    Skip,
)
from headrace.connectors.commit_place import Lsn, Version
from headrace.connectors.kafka.commands import KafkaCommands
from headrace.connectors.kafka.compacted import CompactedTopic
from headrace.sidecar.config.config import load
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.jobs import BackgroundJobs
from headrace.sidecar.state.command_log import CommandLog
from tests.sidecar.operations.test_resync import Asked, Now, Source
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VISITS, answers

SKIPPED = Skip(source="shop", table=CUSTOMERS, place=Lsn(7), topic="t", topic_id="x", partition=1, offset=4)
ALL: tuple[Command, ...] = (
    SKIPPED,
    Resynced(source="shop", table=CUSTOMERS, place=Lsn(8)),
    Replayed(source="shop", table=ORDERS, place=Lsn(9), topic="t", partition=0, offset=3),
    Doubted(source="shop", table=VISITS, place=Lsn(5), why="it was dropped", hint="read it anew", over=False),
    Partition(source="shop", table=VISITS, place=Lsn(6), partition="public.visits_1", captured=True),
    Identity(source="shop", table=VISITS, oids={"public.visits": 16400}),
    Added(source="lake", table="public.prices", place=Version(4), captured=False),
)


def contract(commands: Commands) -> None:
    """What every implementation does."""
    assert list(commands.read()) == []
    commands.forget(["resync/shop/public.t"])
    commands.keep(ALL)
    commands.keep([])
    assert list(commands.read()) == list(ALL)
    later = Resynced(source="shop", table=CUSTOMERS, place=Lsn(80))
    commands.keep([later])
    assert [c for c in commands.read() if isinstance(c, Resynced)] == [later], "the later one of a key stands"
    commands.forget([c.key for c in ALL[1:]])
    assert list(commands.read()) == [SKIPPED]


def test_in_memory() -> None:
    contract(MemoryCommands())


def test_in_kafka(kafka: str, unique: str) -> None:
    topic = f"headrace.{unique}.commands"
    contract(KafkaCommands({"bootstrap.servers": kafka}, topic))
    assert list(KafkaCommands({"bootstrap.servers": kafka}, topic).read()) == [SKIPPED], "they outlive who kept them"
    CompactedTopic({"bootstrap.servers": kafka}, topic, "commands", CommandsError, patience=30.0).put([("a", b"{}")])
    with pytest.raises(CommandsError, match="not known"):
        KafkaCommands({"bootstrap.servers": kafka}, topic).read()


def test_without_a_broker() -> None:
    nobody = KafkaCommands({"bootstrap.servers": "127.0.0.1:1"}, "t", patience=1.0)
    with pytest.raises(CommandsError):
        nobody.keep([SKIPPED])


def test_what_a_state_has_is_not_asked_for_again() -> None:
    kept = MemoryCommands()
    kept.keep(ALL)
    tables = {"shop": [CUSTOMERS, ORDERS, VISITS]}
    lost = CommandLog(kept, tables)
    assert {t: (one.stands, one.by_itself) for t, one in lost.open.items()} == {
        CUSTOMERS: (True, True), ORDERS: (True, True), VISITS: (False, False),
    }  # fmt: skip
    had = {"resynced": {CUSTOMERS: 8, VISITS: 6}, "replayed": [ALL[2].key]}
    assert CommandLog(kept, tables, had).open == {}
    older = CommandLog(kept, tables, {"resynced": {CUSTOMERS: 6, VISITS: 6}, "replayed": [ALL[2].key]})
    assert set(older.open) == {CUSTOMERS}, "a state of before the command lacks it"
    assert CommandLog(kept, {"shop": [ORDERS]}, had).open == {}, "nobody reads the others"


def test_what_is_asked_for_while_a_command_is_lacking_does_not_prove_the_table() -> None:
    kept = MemoryCommands()
    kept.keep([ALL[1]])
    log = CommandLog(kept, {"shop": [CUSTOMERS]})
    log.keep(Resynced(source="shop", table=CUSTOMERS, place=Lsn(900)))
    assert CUSTOMERS in log.open, "it was read, and is not in yet"


class LosingShop(Asked):
    """A shop whose state folder is lost now and then. `jobs`: those of the run."""

    def run(self) -> BackgroundJobs:
        self.start()
        assert self.running is not None
        settings = load(self.folder / "headrace.yaml", {})
        return BackgroundJobs(self.running.runtime, settings, Source(self).read, Now())  # type: ignore[arg-type]

    def lose(self) -> None:
        self.end(drained=True)
        shutil.rmtree(self.folder / "state")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LosingShop]:
    rows: dict[str, Any] = {CUSTOMERS: [(1, 5), (2, 6), (3, 7)], ORDERS: [(1, 1), (2, 2)], VISITS: [(1, 1), (2, 1)]}
    with LosingShop(tmp_path, monkeypatch).begun(rows) as made:
        yield made


def diverged(shop: LosingShop) -> None:
    shop.diverge(CUSTOMERS, drop=[(1, 5)], add=[(9, 9)])
    shop.diverge(VISITS, drop=[(1, 1)], add=[(4, 4)])
    for table in (CUSTOMERS, VISITS):
        shop.ask(table)
        shop.beat()
    shop.is_right()


def test_a_resync_outlives_the_state(shop: LosingShop) -> None:
    diverged(shop)
    shop.lose()
    right = answers(shop.state)
    jobs = shop.run()
    assert shop.running is not None
    log = shop.running.runtime.parts.commands
    for _ in range(4):
        shop.turn()
        assert {v: shop.rows(v) for v in right} == right, "no mended answer turns wrong again"
    assert set(log.open) == {CUSTOMERS, VISITS}
    assert shop.in_error() == {"customers", "by_city", "visits"}
    told: list[Any] = []
    for _ in range(4):
        shop.beat()
        told += jobs.look()
        assert {v: shop.rows(v) for v in right} == right
    assert sorted((t["event"], t["table"]) for t in told) == [("mended", CUSTOMERS), ("mended", VISITS)]
    assert log.open == {}
    shop.transact((CUSTOMERS, "c", (20, 20)), (VISITS, "c", (20, 20)))
    shop.beat()
    shop.is_right()
    shop.end(drained=True)
    shop.start()
    assert shop.running.runtime.parts.commands.open == {}, "the checkpoint has them"
    shop.turn(2)
    shop.is_right()


class Growing(LosingShop):
    """A shop that declares customers without their `v`, and no visits, until it does. `grown`: whether it does."""

    grown = False

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        views = [v for v in NARROW if self.grown or v["name"] != "visits"]
        if self.grown:
            views = [{**v, "sql": v["sql"].replace("select id from", "select id, v from")} for v in views]
        else:
            tables = [t for t in body["sources"][0]["tables"] if t["name"] != VISITS]
            tables = [t | {"columns": t["columns"][:1]} if t["name"] == CUSTOMERS else t for t in tables]
            body["sources"][0]["tables"] = tables
        (self.folder / "views" / "v.yaml").write_text(json.dumps({"version": 1, "views": views}))
        return body


NARROW = [
    {"name": "customers", "key": ["id"], "sinks": ["s"], "sql": "select id from public.customers"},
    {"name": "orders", "key": ["id"], "sinks": ["s"], "sql": "select id, v from public.orders"},
    {"name": "visits", "sinks": ["s"], "sql": "select id, v from public.visits"},
]


@pytest.mark.parametrize("lost", [False, True])
def test_a_table_and_a_column_that_are_declared_later_are_read_from_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """A column with a DEFAULT: what the source has in rows that were not written since is in no topic."""
    shop = Growing(tmp_path, monkeypatch)
    with shop.begun({CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)], VISITS: [(1, 1)]}):
        shop.transact((VISITS, "c", (2, 2)), (ORDERS, "u", (1, 4)))
        shop.beat()
        shop.diverge(CUSTOMERS, drop=[(2, 6)], add=[(2, 60)])
        shop.end(drained=True)
        shop.grown = True
        shop.transact((ORDERS, "u", (1, 3)), (CUSTOMERS, "c", (3, 3)), (VISITS, "c", (3, 3)))
        jobs = shop.run()
        for again in range(2):
            if shop.running is None:
                shutil.rmtree(shop.folder / "state")
                jobs = shop.run()
            assert shop.running is not None
            log = shop.running.runtime.parts.commands
            assert set(log.open) == {CUSTOMERS, VISITS}
            shop.show_all()
            shop.turn(2)
            assert shop.rows("orders") == +shop.state[ORDERS], "a view that names neither misses nothing"
            assert shop.in_error() == {"customers", "visits"}
            for _ in range(4):
                jobs.look()
                shop.beat()
            assert log.open == {}
            for view in ("customers", "orders", "visits"):
                assert shop.rows(view) == answers(shop.state)[view], view
            shop.transact(
                (VISITS, "d", (3 - again, 0)), (CUSTOMERS, "d", (1 + 2 * again, 0)), (CUSTOMERS, "u", (2, 8 + again))
            )
            shop.beat()
            for view in ("customers", "orders", "visits"):
                assert shop.rows(view) == answers(shop.state)[view], view
            if not lost:
                break
            shop.end(drained=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_table_is_added_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    shop = Growing(tmp_path, monkeypatch, workers=workers)
    with shop.begun({CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)], VISITS: [(1, 1), (1, 1)]}):
        shop.transact((VISITS, "c", (2, 2)), (ORDERS, "u", (1, 4)))
        shop.beat()
        body = shop.configure()
        narrow = list(body["sources"][0]["tables"])
        shop.grown = True
        body = shop.configure()  # writes the views
        body["sources"][0]["tables"] = [*narrow, next(t for t in body["sources"][0]["tables"] if t["name"] == VISITS)]
        views = [
            {**v, "sql": v["sql"].replace("select id, v from public.c", "select id from public.c")} for v in NARROW
        ]
        (shop.folder / "views" / "v.yaml").write_text(json.dumps({"version": 1, "views": views}))
        (shop.folder / "headrace.yaml").write_text(json.dumps(body))
        assert shop.running is not None
        changing = ViewChanger(shop.running)
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(changing.apply(drop=False)))
        thread.start()
        while thread.is_alive():
            shop.transact((ORDERS, "u", (1, 7)))
            shop.show_all()
            shop.turn()
        thread.join()
        [told] = done
        assert told["tables_added"] == [VISITS]
        [one] = told["tables"]
        assert "`connect:`" in one["why"]
        shop.transact((VISITS, "c", (3, 3)), (VISITS, "d", (1, 1)))
        shop.beat()
        assert shop.rows("orders") == +shop.state[ORDERS]
        assert shop.in_error() == {"visits"}, "it stands until it is read"
        assert set(shop.running.runtime.parts.commands.open) == {VISITS}
        shop.ask(VISITS)
        shop.beat()
        assert shop.running.runtime.parts.commands.open == {}
        for _ in range(2):
            assert shop.in_error() == set()
            for view in ("orders", "visits"):
                assert shop.rows(view) == answers(shop.state)[view], view
            shop.transact((VISITS, "d", (2, 2)), (VISITS, "c", (2, 2)), (ORDERS, "u", (1, 9)))
            shop.beat()
            shop.end(drained=True)
            monkeypatch.setattr(shop, "configure", lambda: body)
            shop.start()
            shop.turn(3)
            assert shop.running.runtime.parts.commands.open == {}


def test_a_column_that_was_declared_wrongly_is_read_once_it_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = LosingShop(tmp_path, monkeypatch)
    right = shop.configure()
    bad = json.loads(json.dumps(right))
    [customers] = [t for t in bad["sources"][0]["tables"] if t["name"] == CUSTOMERS]
    customers["columns"][1]["data_type"] = "date"
    told = [bad]
    monkeypatch.setattr(shop, "configure", lambda: told[0])
    views = [v for v in NARROW if v["name"] != "customers"]
    views.append({"name": "customers", "key": ["id"], "sinks": ["s"], "sql": "select id, v from public.customers"})
    (shop.folder / "views" / "v.yaml").write_text(json.dumps({"version": 1, "views": views}))
    with shop.begun({CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)], VISITS: []}):
        shop.transact((CUSTOMERS, "u", (1, 1 << 40)), (ORDERS, "c", (2, 2)))
        shop.beat()
        assert shop.in_error() == {"customers"}, "no date is so far away"
        shop.end(drained=True)
        told[0] = right
        jobs = shop.run()
        shop.transact((CUSTOMERS, "c", (3, 3)), (ORDERS, "c", (3, 3)))
        for _ in range(4):
            jobs.look()
            shop.beat()
        assert shop.in_error() == set()
        assert shop.running is not None
        assert shop.running.runtime.parts.commands.open == {}
        for view in ("customers", "orders"):
            assert shop.rows(view) == answers(shop.state)[view], view


def test_a_kill_right_after_a_resync_asks_for_nothing(shop: LosingShop) -> None:
    diverged(shop)
    shop.end()
    shop.start()
    shop.turn(3)
    assert shop.running is not None
    assert shop.running.runtime.parts.commands.open == {}
    shop.is_right()


def test_without_a_database_the_table_waits_for_the_operator(shop: LosingShop, monkeypatch: pytest.MonkeyPatch) -> None:
    diverged(shop)
    shop.lose()
    full = shop.configure()
    del full["sources"][0]["database"]
    monkeypatch.setattr(shop, "configure", lambda: full)
    jobs = shop.run()
    told: list[Any] = []
    for _ in range(4):
        shop.beat()
        told += jobs.look()
    assert {(t["event"], t["table"]) for t in told} == {("mend_failed", CUSTOMERS), ("mend_failed", VISITS)}
    assert len(told) == 2, "it is not tried at each turn"
    assert shop.running is not None
    assert "headrace resync" in shop.running.runtime.parts.commands.open[CUSTOMERS].hint
    assert shop.in_error() == {"customers", "by_city", "visits"}


def test_a_resync_that_the_log_cannot_keep_changes_nothing(shop: LosingShop) -> None:
    shop.diverge(CUSTOMERS, drop=[(1, 5)], add=[(9, 9)])
    shop.commands.broken = True
    shop.ask(CUSTOMERS)
    shop.beat()
    [told] = shop.told
    assert isinstance(told, CommandsError)
    assert shop.rows("customers") != answers(shop.state)["customers"]


def test_a_record_that_was_passed_over_is_so_again(shop: LosingShop) -> None:
    [place] = shop.transact((ORDERS, "u", (1, 2)))
    shop.places.add(place)
    shop.show_all()
    shop.turn(3)
    assert shop.stopped() == [ORDERS]
    shop.skip = [place]
    shop.end(drained=True)
    jobs = shop.run()
    shop.beat()
    assert shop.stopped() == []
    assert shop.running is not None
    assert set(shop.running.runtime.parts.commands.open) == {ORDERS}, "a change is lost until the table is read anew"
    assert shop.in_error() == set(), "it goes on without, as the operator said"
    shop.ask(ORDERS)
    shop.beat()
    assert shop.running.runtime.parts.commands.open == {}
    shop.is_right()
    shop.skip = []  # the configuration names it no more
    shop.lose()
    jobs = shop.run()
    for _ in range(4):
        shop.beat()
        jobs.look()
    assert shop.stopped() == []
    shop.is_right()


def test_a_table_that_files_filled_is_unproven_in_a_state_that_lacks_them() -> None:
    """Whichever version the state has: an offline load may have filled it anew, of topics that were made anew."""
    commands, table = MemoryCommands(), "public.prices"
    commands.keep([Added(source="lake", table=table, place=Version(4), captured=False)])
    lost = CommandLog(commands, {"lake": [table]})
    [one] = lost.open.values()
    assert (one.stands, one.by_itself) == (True, False)
    assert f"headrace load {table}" in one.hint
    assert "--version 4" in one.hint
    kept = CommandLog(commands, {"lake": [table]}, {"resynced": {table: 2}})
    assert (kept.open, kept.filled("lake"), kept.filled("shop")) == ({}, {table: 4}, {})
    kept.begins_empty([table])
    assert set(kept.open) == {table}
    assert CommandLog(commands, {"lake": []}).open == {}, "no view reads it"
