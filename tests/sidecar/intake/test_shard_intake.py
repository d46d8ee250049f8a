"""Workers that read the topics: the sidecar publishes what it does with its own intake, and is told who may not be changed.

Random histories with kills, snapshots, suspended tables and large transactions are played with them too, by the tests of each
(`HEADRACE_TEST_INTAKE=shards` plays all).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connectors.source import SourceError
from headrace.sidecar.config.config import load_for_replay
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.control.query import answer
from headrace.sidecar.control.rescale import Rescaling
from headrace.sidecar.execution.workers import kept_rows
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.intake.shard_reader import reader_of
from headrace.sidecar.process.status_board import status
from headrace.views.yaml_reader import ConfigError
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.control.test_apply import BIGGEST, biggest
from tests.sidecar.support.little import CUSTOMERS, ORDERS, PREFIX, VIEWS, VISITS, Little, answers

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
    check(shop)


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


def test_the_count_of_workers_stays_while_they_read(shop: Little) -> None:
    assert shop.running is not None
    with pytest.raises(ControlError, match="workers that read the sources"):
        Rescaling(shop.running, ViewChanger(shop.running)).rescale(3)
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
