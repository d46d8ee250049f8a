"""A later snapshot takes the place of what its tables held; an LSN that goes back stops all, by name."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connectors.source import Positions
from headrace.sidecar.transactions.model import ContinuityError
from tests.sidecar.operations.test_resync import Asked
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, PREFIX, VISITS, Little, Row, State, answers, plays


def anew(shop: Little, rows: dict[str, list[Row]]) -> None:
    """The slot was lost and what came meanwhile with it: the connector reads all tables again."""
    shop.lsn += 100
    shop.state = {t: Counter() for t in KEYS}
    shop.snapshot(rows)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    with Little(tmp_path, monkeypatch).begun(
        {CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1), (2, 1)]}
    ) as made:
        yield made


def is_right(shop: Little, state: State) -> None:
    assert shop.in_error() == set()
    for view, rows in answers(state).items():
        assert shop.rows(view) == rows, view


def test_rows_that_are_not_seen_again_go(shop: Little) -> None:
    shop.transact((CUSTOMERS, "u", (1, 7)))
    shop.show_all()
    shop.turn(2)
    before = shop.running.runtime.epoch
    anew(shop, {CUSTOMERS: [(2, 2), (3, 3)], VISITS: [(1, 1), (1, 1)]})
    shop.transact((CUSTOMERS, "u", (3, 4)), (ORDERS, "c", (9, 3)))
    shop.show_all()
    shop.turn(3)
    is_right(shop, shop.state)
    assert shop.running.runtime.epoch == before + 2
    shop.end()
    shop.start()
    shop.transact((CUSTOMERS, "d", (2, 2)))
    shop.show_all()
    shop.turn(3)
    is_right(shop, shop.state)


def test_a_transaction_that_was_cut_off_is_dropped(shop: Little) -> None:
    """Its last event never came, as the slot was lost; the snapshot has what it did."""
    shop.transact((CUSTOMERS, "u", (1, 7)), (ORDERS, "c", (5, 5)))
    shop.queues[f"{PREFIX}.{ORDERS}"].pop()
    shop.ends[f"{PREFIX}.{ORDERS}/0"] -= 1
    shop.show_all()
    shop.turn(2)
    assert shop.running.runtime.waiting() is not None
    anew(shop, {CUSTOMERS: [(1, 7)], ORDERS: [(5, 5)]})
    shop.show_all()
    shop.turn(3)
    is_right(shop, shop.state)
    assert shop.running.runtime.waiting() is None


def test_a_transaction_without_its_end_holds_no_position_once_the_slot_is_lost(shop: Little, tmp_path: Path) -> None:
    """And no sink, whose frontier is beyond it, where the state folder is lost too: it waited for ever."""

    def positions() -> tuple[Positions, Positions]:
        (intake,) = shop.running.runtime.parts.intakes
        return intake.positions(), intake.source.positions()

    shop.transact((CUSTOMERS, "u", (1, 7)), (ORDERS, "c", (5, 5)))
    shop.queues[f"{PREFIX}.transaction"].pop()
    shop.show_all()
    shop.turn(2)
    held, read = positions()
    assert held[f"{PREFIX}.{ORDERS}"][0] == read[f"{PREFIX}.{ORDERS}"][0] - 1
    shop.clock = 1
    anew(shop, {CUSTOMERS: [(1, 7)], ORDERS: [(5, 5)]})
    for emptied in (False, True):
        shop.transact((CUSTOMERS, "u", (1, 8)))
        shop.show_all()
        shop.turn(3)
        is_right(shop, shop.state)
        assert (held := positions())[0] == held[1]
        if not emptied:
            shop.end()
            shutil.rmtree(tmp_path / "state")
            shop.start()


def test_what_retention_left_of_a_snapshot_empties_no_sink(shop: Little, tmp_path: Path) -> None:
    """Found by the simulator: the state folder is lost when the topics are cut, and the sinks were told that nothing is there."""
    shop.transact((CUSTOMERS, "u", (1, 7)), (ORDERS, "c", (5, 7)))
    shop.show_all()
    shop.turn(2)
    held, places = dict(shop.state), shop.running.runtime.parts.intakes[0].positions()
    shop.end()
    shutil.rmtree(tmp_path / "state")
    for topic, offsets in places.items():
        for partition, offset in offsets.items():
            shop.log.truncate(topic, partition, offset)
    shop.start()
    shop.turn(3)
    is_right(shop, held)
    waiting = shop.running.runtime.waiting()
    assert waiting is not None
    assert waiting[1].kind == "snapshot"
    anew(shop, {CUSTOMERS: [(1, 8)], VISITS: [(1, 1)]})
    shop.show_all()
    shop.turn(3)
    is_right(shop, shop.state)


def test_what_the_log_has_comes_before_a_snapshot_that_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sidecar is killed once it has bound transactions, and reads them again with the marks of a later snapshot."""
    with Little(tmp_path, monkeypatch, every_turn=False).begun({CUSTOMERS: [(1, 1)], ORDERS: [(1, 1)]}) as shop:
        shop.end(drained=True)
        shop.start()
        for v in (7, 8):
            shop.transact((CUSTOMERS, "u", (1, v)), (ORDERS, "u", (1, v)))
        shop.show_all()
        shop.turn(3)
        shop.end()
        anew(shop, {CUSTOMERS: [(1, 9)], ORDERS: [(1, 9), (2, 2)]})
        shop.transact((CUSTOMERS, "u", (1, 6)))
        shop.show_all()
        shop.start()
        shop.turn(5)
        is_right(shop, shop.state)
        assert shop.running.runtime.parts.reclock.replaying is None


@pytest.mark.parametrize("again", [False, True])
def test_what_the_log_bound_since_the_checkpoint_comes_before_it(shop: Little, again: bool) -> None:
    """Killed with more bound than the checkpoint has, or with the snapshot itself bound too."""
    shop.running.runtime.parts.checkpoint_seconds = 1e6
    shop.transact((CUSTOMERS, "u", (1, 7)))
    shop.transact((CUSTOMERS, "u", (1, 8)), (ORDERS, "c", (5, 5)))
    shop.show_all()
    shop.turn(2)
    bound = shop.running.runtime.epoch
    if not again:
        shop.end()
    anew(shop, {CUSTOMERS: [(2, 2), (3, 3)], VISITS: [(1, 1)]})
    shop.transact((CUSTOMERS, "u", (3, 4)))
    shop.show_all()
    if again:
        shop.turn(3)
        shop.end()
    shop.start()
    assert shop.running.runtime.epoch < bound
    shop.show_all()
    shop.turn(3)
    is_right(shop, shop.state)
    assert shop.running.runtime.epoch == bound + 2


@plays(12)
def test_whenever_it_comes_and_whatever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, intake: str
) -> None:
    """Topics are shown at random, processes end at random: each state that is shown is right at its frontier."""
    draw = random.Random(seed)
    shop = Little(tmp_path, monkeypatch, every_turn=draw.random() < 0.3, intake=intake)
    shop.batch = draw.choice([1, 3, 1 << 16])
    for again in range(2):
        rows = {t: [(i, draw.randrange(1, 6)) for i in range(1, draw.randrange(1, 6))] for t in KEYS}
        if again:
            anew(shop, rows)
        else:
            shop.snapshot(rows)
        for _ in range(draw.randrange(5)):
            shop.random(draw)
        shop.start()
        for _ in range(draw.randrange(2, 10)):
            for topic in list(shop.queues):
                shop.show(topic, min(len(shop.queues[topic]), draw.randrange(0, 6)))
            shop.turn()
            if shop.store.frontier is not None and not shop.running.runtime.hold:
                is_right(shop, shop.states[shop.store.frontier.sources["shop"].place.order])
        if not again:
            shop.show_all()
            shop.turn(60)
        shop.end(drained=not again or draw.random() < 0.5)
    shop.start()
    shop.show_all()
    shop.turn(80)
    is_right(shop, shop.state)
    shop.end()


def test_an_lsn_that_goes_back_is_named(shop: Little) -> None:
    shop.transact((CUSTOMERS, "u", (1, 7)))
    shop.transact((CUSTOMERS, "u", (1, 8)))
    shop.show_all()
    shop.turn(2)
    before = Counter(shop.rows("customers"))
    shop.lsn -= 3
    shop.transact((CUSTOMERS, "u", (1, 9)))
    shop.show_all()
    with pytest.raises(ContinuityError, match="LSN went back"):
        shop.turn(2)
    assert shop.rows("customers") == before


def test_a_snapshot_of_a_standby_behind_is_named(shop: Little) -> None:
    for v in range(3, 60):
        shop.transact((CUSTOMERS, "u", (1, v)))
    shop.show_all()
    shop.turn(2)
    shop.lsn -= 130
    anew(shop, {CUSTOMERS: [(1, 5)]})
    shop.transact((CUSTOMERS, "u", (1, 9)))
    shop.show_all()
    with pytest.raises(ContinuityError, match="LSN went back"):
        shop.turn(2)


def test_the_end_of_a_bound_transaction_may_come_again(shop: Little) -> None:
    shop.transact((CUSTOMERS, "u", (1, 7)))
    again = {t: list(q) for t, q in shop.queues.items()}
    shop.transact((CUSTOMERS, "u", (1, 8)))
    shop.show_all()
    shop.turn(2)
    for topic, queue in again.items():
        shop.queues[topic] += queue
    shop.show_all()
    shop.turn(2)
    is_right(shop, shop.state)


@pytest.mark.parametrize("left", [[(2, 6)], []])
def test_a_table_is_read_for_a_resync_after_the_first_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[Row]
) -> None:
    """Found by the simulator (seed 2027): what had gone between the two came back by the resync."""
    shop = Asked(tmp_path, monkeypatch)
    with closing(shop):
        shop.state[CUSTOMERS] = Counter([(1, 5), (2, 6)])
        shop.start()
        shop.ask(CUSTOMERS)
        shop.turn()
        anew(shop, {CUSTOMERS: left, ORDERS: [(1, 1)]})
        shop.show_all()
        shop.turn(4)
        assert [told["removed"] for told in shop.told] == [0]
        is_right(shop, shop.state)
