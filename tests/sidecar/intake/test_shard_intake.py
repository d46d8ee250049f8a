"""Workers that read the topics: the sidecar publishes what it does with its own intake, and is told who may not be changed.

Random histories with kills, snapshots, suspended tables and large transactions are played with them too, by the tests of each
(`HEADRACE_TEST_INTAKE=shards` plays all).
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.source import SourceError
from headrace.sidecar.config.config import load_for_replay
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.control.query import answer
from headrace.sidecar.control.rescale import Rescaling, Successor
from headrace.sidecar.execution.workers import kept_rows
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import SlotsMissing
from headrace.sidecar.intake.shard_reader import reader_of
from headrace.sidecar.intake.source_intake import UndecodableError
from headrace.sidecar.operations.resync import Resync, TableRead
from headrace.sidecar.process.status_board import status
from headrace.sidecar.wiring import shard_intakes
from headrace.views.yaml_reader import ConfigError
from tests.doubles.memory import MemorySource
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.control.test_apply import BIGGEST, biggest
from tests.sidecar.support.little import CUSTOMERS, ORDERS, PREFIX, VIEWS, VISITS, Little, answers, read_ahead

BEGINNING = {CUSTOMERS: [(1, 1), (2, 2), (3, 1)], ORDERS: [(1, 1), (2, 3)], VISITS: [(1, 1), (2, 1), (1, 1)]}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    with Little(tmp_path, monkeypatch, intake="shards").begun(BEGINNING) as made:
        yield made


def go_on(shop: Little, draw: random.Random, rounds: int = 3) -> None:
    """Random transactions; the sink held the truth at every frontier."""
    for _ in range(rounds):
        for _ in range(draw.randrange(1, 4)):
            shop.random(draw)
        shop.show_all()
        shop.turn()
    until = time.monotonic() + 20
    while behind(shop) and time.monotonic() < until:  # workers read at their own pace
        shop.turn()
    check(shop)


def behind(shop: Little) -> bool:
    frontier = shop.store.frontier
    return frontier is None or frontier.sources["shop"].place.order < shop.lsn


def check(shop: Little) -> None:
    frontier = shop.store.frontier
    assert frontier is not None
    assert frontier.sources["shop"].place.order == shop.lsn
    for at, rows in [*shop.store.history, (frontier, shop.store.rows)]:
        assert at is None or rows == answers(shop.states[at.sources["shop"].place.order])
    assert not shop.store.errors


def flow_of(shop: Little) -> Workers:
    assert shop.running is not None
    flow = shop.running.runtime.parts.flow
    assert isinstance(flow, Workers)
    return flow


def test_what_it_publishes_and_how_either_intake_goes_on_from_the_other(shop: Little) -> None:
    draw = random.Random(1)
    go_on(shop, draw, 6)
    for intake, workers in (("driver", 2), ("shards", 3), ("driver", 1), ("shards", 2)):
        shop.end(drained=draw.random() < 0.5)
        shop.intake, shop.workers = intake, workers
        shop.random(draw)
        shop.start()
        go_on(shop, draw)


def test_the_driver_decodes_nothing(shop: Little, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition is read by one worker, and no row comes to the driver but for those who follow it."""
    assert shop.running is not None
    [intake] = shop.running.runtime.parts.intakes

    def refused(*_: object) -> None:
        raise AssertionError("the driver decodes")

    monkeypatch.setattr(intake.format, "decode", refused)
    monkeypatch.setattr(Workers, "rows_of", refused)
    go_on(shop, random.Random(2))
    told = status(shop.running)
    assert told["sources"][0]["positions"][f"{PREFIX}.{CUSTOMERS}"].keys() == {0, 1}
    assert reader_of(f"{PREFIX}.{CUSTOMERS}", 0, 2) != reader_of(f"{PREFIX}.{CUSTOMERS}", 1, 2)


def test_a_view_that_is_added_is_given_the_rows_that_come_meanwhile(shop: Little) -> None:
    assert shop.running is not None
    running = shop.running
    go_on(shop, random.Random(3))
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + BIGGEST)
    meanwhile(shop, lambda: ViewChanger(running).apply(drop=False))
    found = meanwhile(shop, lambda: answer(running, "select count(*) from public.orders"))
    assert found.rows.num_rows == 1
    assert shop.rows("biggest") == biggest(shop)


def rescale(shop: Little, workers: int, *, busy: bool = True) -> Any:
    """What `headrace rescale` does, while the loop turns."""
    assert shop.running is not None
    running = shop.running
    return meanwhile(shop, lambda: Rescaling(running, ViewChanger(running)).rescale(workers), busy=busy)


def half(shop: Little, draw: random.Random) -> None:
    """Transactions of which Kafka does not show all yet: the rows that it shows are kept, and read by nobody again."""
    for _ in range(20):
        shop.random(draw)
        for topic, queue in shop.queues.items():
            if topic != f"{PREFIX}.transaction":
                shop.show(topic, draw.randrange(len(queue) + 1))
        shop.turn()
        if kept(shop):
            return
    raise AssertionError("nothing is kept")


def kept(shop: Little) -> list[int]:
    """The runs that workers keep."""
    flow_of(shop).exert(1)
    return flow_of(shop).rows.kept.numbers


@pytest.mark.parametrize("spills", [False, True], ids=["in memory", "on disk"])
def test_another_count_of_workers_takes_over_what_is_kept(
    shop: Little, monkeypatch: pytest.MonkeyPatch, *, spills: bool
) -> None:
    draw = random.Random(4)
    if spills:
        monkeypatch.setattr(shard_intakes, "spill_bytes", lambda _: 0)
    for workers in (3, 2, 5, 4, 2):
        half(shop, draw)
        done = rescale(shop, workers, busy=False)
        assert (done["workers"], flow_of(shop).count) == (workers, workers)
        go_on(shop, draw, 2)
        rescale(shop, workers + 1)
        go_on(shop, draw, 1)
    shop.running.runtime.turn(0.0)  # type: ignore[union-attr]
    assert kept(shop) == [], "nothing is kept that is in"
    assert not list(shop.folder.rglob("*ing over*"))


def test_tables_that_were_taken_in_since_are_read_by_other_workers(shop: Little) -> None:
    """A table whose columns are declared otherwise, of which rows are kept as they were before."""
    draw = random.Random(8)
    go_on(shop, draw)
    rescale(shop, 3)
    half(shop, draw)
    before = shop.configure

    def configure() -> dict[str, Any]:
        body = before()
        body["sources"][0]["tables"][1]["columns"][1] = {"name": "city", "data_type": "bigint", "renamed_from": "v"}
        return body

    shop.configure = configure  # type: ignore[method-assign]
    (shop.folder / "headrace.yaml").write_text(json.dumps(shop.configure()))
    views = VIEWS.replace("select id, v from public.orders", "select id, city as v from public.orders")
    (shop.folder / "views" / "v.yaml").write_text(views.replace("c.id = o.v", "c.id = o.city"))
    running = shop.running
    assert running is not None
    meanwhile(shop, lambda: ViewChanger(running).apply(drop=False), busy=False)
    assert running.settings.config.engine.workers == 3, "the file says 2, which is for the next start"
    rescale(shop, 4, busy=False)
    shop.show_all()
    shop.turn(2)
    check(shop)
    for _ in range(4):
        shop.random(draw)
        named(shop)
        shop.show_all()
        shop.turn()
    check(shop)


def named(shop: Little) -> None:
    """What Kafka does not show yet of orders has the column under its new name."""
    queue = shop.queues.get(f"{PREFIX}.{ORDERS}", [])
    for at, (partition, value, key) in enumerate(queue):
        queue[at] = (partition, value.replace(b'"v":', b'"city":'), key)


def test_a_resync_that_waits_goes_on_with_other_workers(shop: Little) -> None:
    """It has noted transactions whose rows are kept, as they came after the table was read."""
    assert shop.running is not None
    runtime, told = shop.running.runtime, list[Any]()
    [intake] = runtime.parts.intakes
    shop.state[CUSTOMERS][50, 1] += 1  # the source has it, its topic does not tell
    lines = [f"{i}\t{v}" for i, v in (+shop.state[CUSTOMERS]).elements()]
    read = TableRead(shop.lsn + 1, pa.array(lines, pa.large_string()))
    with ThreadPoolExecutor(1) as executor:
        schema = intake.schemas[CUSTOMERS]
        runtime.jobs.append(Resync(CUSTOMERS, executor, told.append, intake, schema, lambda: read))
        shop.turn()
        shop.lsn += 1
        shop.transact((CUSTOMERS, "u", (1, 4)), (CUSTOMERS, "d", (2, 2)))
        shop.show_all()
        with pytest.MonkeyPatch.context() as patch:  # it does not look between the step and the switch
            patch.setattr(Resync, "_attend", lambda *_: False)
            shop.turn()
            rescale(shop, 3, busy=False)
        shop.turn(4)
    [report] = told
    assert (report.added, report.changed, report.removed) == (1, 0, 0)
    assert shop.rows("customers") == Counter(+shop.state[CUSTOMERS])


@pytest.mark.parametrize("room", [True, False], ids=["beside", "instead"])
def test_where_other_workers_cannot_read_the_old_go_on(
    shop: Little, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    draw = random.Random(9)
    half(shop, draw)
    assert shop.running is not None
    real, old = shop.running.maker, flow_of(shop)
    if not room:

        def cramped(count: int, task: object) -> Any:
            if old._lost is None:
                raise SlotsMissing("too few slots", wanted=count, free=0)
            return real(count, task)

        shop.running.maker = cramped
    tried = [SourceError("no broker answers")]
    opened = MemorySource.open

    def away(self: MemorySource, positions: Any) -> None:
        with suppress(IndexError):  # one of the workers' threads
            raise tried.pop()
        opened(self, positions)

    monkeypatch.setattr(MemorySource, "open", away)
    with pytest.raises(SourceError, match="no broker answers"):
        rescale(shop, 3, busy=False)
    assert flow_of(shop).count == 2
    assert (flow_of(shop) is old) == room
    go_on(shop, draw)
    rescale(shop, 3)
    go_on(shop, draw)


def test_a_topic_made_anew_is_not_read_on_by_other_workers(shop: Little, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = set[int](), MemorySource.open

    def noted(self: MemorySource, positions: Any) -> None:
        opened.add(id(self))
        real(self, positions)

    monkeypatch.setattr(MemorySource, "open", noted)
    monkeypatch.setattr(MemorySource, "topic_ids", lambda self: {"t": "another" if id(self) in opened else "one"})
    shop.turn(2)
    with pytest.raises(SourceError, match="made anew"):
        rescale(shop, 3, busy=False)
    assert flow_of(shop).count == 2
    go_on(shop, random.Random(9))


def test_what_was_read_ahead_is_read_again_by_other_workers(shop: Little) -> None:
    draw = random.Random(10)
    for _ in range(5):
        shop.random(draw)
    read_ahead(shop, shop.show_all)
    assert shop.running is not None
    rescaling = Rescaling(shop.running, ViewChanger(shop.running))
    successor = Successor(rescaling._begun(3))
    shop.running.runtime.checkpoints.wait(None)
    assert rescaling._begin(3, successor)
    successor.hydrate()
    rescaling._switch(3, successor)  # on the loop, before anything is handed out
    successor.end(shop.running.runtime)
    shop.turn()
    check(shop)
    go_on(shop, draw)


def test_what_cannot_be_taken_in_before_a_table_is_declared_otherwise_ends_the_run_as_it_would(shop: Little) -> None:
    """And is not lost with whoever asked."""
    assert shop.running is not None
    [intake] = shop.running.runtime.parts.intakes
    taken = intake.take

    def broken(_: object) -> None:
        raise UndecodableError("broken")

    shop.transact((ORDERS, "c", (70, 1)))
    read_ahead(shop, shop.show_all)
    intake.take = broken  # type: ignore[method-assign]
    with pytest.raises(UndecodableError, match="broken"):
        intake.settle()
    intake.take = taken  # type: ignore[method-assign]
    with pytest.raises(UndecodableError, match="broken"):
        shop.running.runtime.turn(0.0)


def test_one_worker_of_this_machine_does_not_read(shop: Little) -> None:
    assert shop.running is not None
    with pytest.raises(ControlError, match="one worker on this machine is the sidecar itself"):
        Rescaling(shop.running, ViewChanger(shop.running)).rescale(1)
    go_on(shop, random.Random(4))


def test_one_local_worker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "headrace.yaml").write_text(
        "version: 1\nname: t\nkafka: {bootstrap.servers: localhost}\nengine: {intake: shards}\n"
        "sources: [{name: s, type: debezium, topic_prefix: s}]\n"
    )
    with pytest.raises(ConfigError, match="workers to 2 or more"):
        load_for_replay(tmp_path / "headrace.yaml", {})


def test_what_a_worker_s_source_fails_with_is_its_error(shop: Little) -> None:
    shop.log.reachable = False
    assert shop.running is not None
    with pytest.raises(SourceError, match="cannot be reached"):
        shop.running.runtime.run()


def test_nothing_is_kept_that_is_in(shop: Little) -> None:
    made: list[kept_rows.KeptRows] = []
    shop.end()
    real = kept_rows.KeptRows.__init__

    def noted(self: kept_rows.KeptRows, shard: int, count: int) -> None:
        real(self, shard, count)
        made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_rows.KeptRows, "__init__", noted)
        shop.start()
        go_on(shop, random.Random(5))
    assert shop.running is not None
    shop.running.runtime.turn(0.0)  # at rest
    shop.running.runtime.turn(0.0)
    flow_of(shop).facts()
    assert [len(kept) for kept in made] == [0, 0]
