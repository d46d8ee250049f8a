"""A record that cannot be decoded stops its table and nothing else, and the table goes on when it is mended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.seeds import seeds
from tests.sidecar.support.little import CUSTOMERS, INTAKE, ORDERS, OVER, PREFIX, VISITS, Little, Place, answers


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    made = Little(tmp_path, monkeypatch)
    made.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1), (2, 1)]})
    yield made
    made.close()


def check(shop: Little, *but: str) -> None:
    """Every view is what SQL answers at the sink's frontier, but for those named, which are marked."""
    assert shop.store.frontier is not None
    wanted = answers(shop.states[shop.store.frontier.sources["shop"].place.order])
    assert shop.in_error() == set(but)
    for view, rows in wanted.items():
        if view not in but:
            assert shop.rows(view) == rows, view


@pytest.mark.parametrize("readable", [True, False])
def test_the_views_of_the_table_stand_still_and_the_others_go_on(shop: Little, readable: bool) -> None:
    shop.readable = readable
    shop.transact((CUSTOMERS, "u", (1, 3)))
    shop.show_all()
    shop.start()
    shop.turn(2)
    check(shop)
    before = {v: shop.rows(v) for v in OVER[CUSTOMERS]}
    (_, bad) = shop.transact((ORDERS, "c", (2, 2)), (CUSTOMERS, "u", (2, 4)))
    shop.transact((CUSTOMERS, "d", (1, 0)), (VISITS, "u", (1, 5)))
    shop.places.add(bad)
    shop.show_all()
    shop.turn(3)
    shop.transact((ORDERS, "c", (3, 1)), (CUSTOMERS, "c", (3, 1)))
    shop.show_all()
    shop.turn(2)
    check(shop, "customers", "by_city")
    assert {v: shop.rows(v) for v in OVER[CUSTOMERS]} == before
    message = shop.store.errors["customers"][0]
    for part in (
        "broken",
        "table=public.customers",
        f"topic={bad[0]}",
        f"partition={bad[1]}",
        f"offset={bad[2]}",
        "mend it",
    ):
        assert part in message
    assert shop.running.runtime.ready == (True, f"\nstopped shop: {message}")
    frontier = shop.store.frontier
    assert frontier.sources["shop"].positions[bad[0]][bad[1]] == bad[2], "the sink does not claim the record"


def stopped_at(shop: Little, *, readable: bool = True) -> Place:
    """A shop whose customers stand still for a record; other transactions went on meanwhile."""
    shop.readable = readable
    shop.show_all()
    shop.start()
    shop.turn(2)
    (_, bad) = shop.transact((ORDERS, "c", (2, 2)), (CUSTOMERS, "u", (2, 4)))
    shop.transact((CUSTOMERS, "u", (1, 5)), (VISITS, "u", (1, 5)))
    shop.places.add(bad)
    shop.show_all()
    shop.turn(3)
    check(shop, "customers", "by_city")
    return bad


@pytest.mark.parametrize("drained", [True, False])
@pytest.mark.parametrize("readable", [True, False])
def test_a_restart_keeps_it_so_and_one_that_can_read_the_record_goes_on(
    shop: Little, readable: bool, drained: bool
) -> None:
    stopped_at(shop, readable=readable)
    shop.end(drained=drained)
    for _ in range(2):
        shop.start()
        shop.transact((VISITS, "c", (7, 7)), (CUSTOMERS, "u", (1, 6)))
        shop.show_all()
        shop.turn(3)
        check(shop, "customers", "by_city")
        shop.end(drained=drained)
    shop.places.clear()
    shop.start()
    shop.turn(2)
    check(shop)
    assert shop.stopped() == []
    shop.transact((CUSTOMERS, "d", (1, 6)))
    shop.show_all()
    shop.turn(2)
    check(shop)
    shop.end(drained=drained)
    shop.start()
    shop.turn(2)
    check(shop)


def test_nothing_between_is_published(shop: Little) -> None:
    stopped_at(shop)
    shop.end(drained=True)
    shop.places.clear()
    shop.batch = 1
    shop.start()
    wanted = answers(shop.state)["customers"]
    seen = [h["customers"] for _, h in shop.store.history][-1]
    shop.turn(6)
    check(shop)
    late = [h["customers"] for _, h in shop.store.history]
    assert late[-1] == wanted
    assert {tuple(sorted(c)) for c in late[late.index(seen) :]} == {tuple(sorted(seen)), tuple(sorted(wanted))}


def test_a_skipped_record_is_passed_over_and_its_transaction_waits_for_nothing(shop: Little) -> None:
    bad = stopped_at(shop)
    shop.end()
    shop.skip = [bad]
    shop.start()
    shop.turn(2)
    assert shop.in_error() == set()
    assert shop.rows("customers") == {(1, 5): 1, (2, 2): 1}, "all but the change that was skipped"
    assert shop.rows("orders") == answers(shop.state)["orders"]
    (source,) = shop.running.runtime.parts.intakes
    assert source.over.skipped == [bad]
    shop.end(drained=True)
    (shop.folder / "state").rename(shop.folder / "lost")
    shop.start()
    shop.transact((CUSTOMERS, "c", (9, 9)))
    shop.show_all()
    shop.turn(3)
    assert shop.in_error() == set()
    assert shop.rows("customers") == {(1, 5): 1, (2, 2): 1, (9, 9): 1}, "also where all is read anew"


def test_a_skipped_record_is_read_again_where_its_table_stops_for_another(shop: Little) -> None:
    """Found by the simulator (seed 22050): its transaction, which was not whole yet, waited for it for ever afterwards."""
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.transact((ORDERS, "c", (2, 2)))
    (first,) = shop.transact((CUSTOMERS, "u", (1, 5)))
    (second,) = shop.transact((CUSTOMERS, "u", (1, 6)))
    assert first[:2] == second[:2]
    shop.places |= {first, second}
    shop.skip = [first]
    shop.end()
    shop.start()
    shop.show(f"{PREFIX}.transaction")
    shop.show(f"{PREFIX}.{ORDERS}")
    shop.show(first[0], 2)
    shop.turn(2)
    (source,) = shop.running.runtime.parts.intakes
    assert [stop.table for stop in source.assembler.stops] == [CUSTOMERS]
    shop.end(drained=True)
    shop.skip = [first, second]
    shop.start()
    shop.show_all()
    shop.turn(3)
    assert shop.running.runtime.waiting() is None
    assert shop.in_error() == set()
    assert shop.rows("customers") == {(1, 1): 1, (2, 2): 1}


def test_a_row_that_can_be_read_is_taken_whatever_skip_names(shop: Little) -> None:
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.end(drained=True)
    (_, named) = shop.transact((ORDERS, "c", (2, 2)), (CUSTOMERS, "c", (7, 7)))
    shop.skip = [named]
    shop.start()
    shop.show_all()
    shop.turn(3)
    assert shop.rows("orders") == answers(shop.state)["orders"]
    assert (7, 7) in shop.rows("customers")
    (source,) = shop.running.runtime.parts.intakes
    assert source.over.skipped == []


def test_a_record_of_the_snapshot_stops_its_table_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Little(tmp_path, monkeypatch)
    places = shop.snapshot({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1), (1, 1)]})
    shop.places.add(places[1])
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.transact((CUSTOMERS, "u", (1, 3)), (ORDERS, "u", (1, 2)))
    shop.show_all()
    shop.turn(2)
    check(shop, "customers", "by_city")
    assert not shop.rows("customers")
    shop.end()
    shop.places.clear()
    shop.start()
    shop.turn(3)
    check(shop)
    shop.end()


def test_a_lost_state_folder_is_read_anew_up_to_the_record(shop: Little) -> None:
    stopped_at(shop)
    shop.end(drained=True)
    (shop.folder / "state").rename(shop.folder / "lost")
    shop.start()
    shop.transact((VISITS, "c", (8, 8)))
    shop.show_all()
    shop.turn(4)
    check(shop, "customers", "by_city")
    shop.end(drained=True)
    shop.places.clear()
    shop.start()
    shop.turn(3)
    check(shop)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6))
def test_whatever_comes_when_and_whenever_it_is_killed(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    played(tmp_path_factory, seed, INTAKE)


@pytest.mark.parametrize("seed", seeds(12))
def test_the_same_where_workers_read(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    played(tmp_path_factory, seed, "shards")


def played(tmp_path_factory: pytest.TempPathFactory, seed: int, intake: str) -> None:
    """Bad records, polls, kills and mends at random: what is not marked is right at every write, what is marked stands
    still, and in the end everything is there once."""
    draw = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        shop = Little(tmp_path_factory.mktemp("w"), patch, every_turn=draw.random() < 0.5, intake=intake)
        shop.readable, shop.batch = draw.random() < 0.5, draw.choice([1, 3, 1 << 16])
        start = {t: [(i, draw.randrange(1, 6)) for i in range(1, draw.randrange(1, 5))] for t in OVER}
        places = shop.snapshot(start)
        for _ in range(14):
            places += shop.random(draw)
        bad = draw.sample(places, draw.randrange(1, 3))
        shop.places |= set(bad)
        for _ in range(draw.randrange(1, 5)):
            shop.start()
            for _ in range(draw.randrange(0, 12)):
                for topic in list(shop.queues):
                    shop.show(topic, min(len(shop.queues[topic]), draw.randrange(0, 6)))
                shop.turn()
                marked(shop)
            shop.end(drained=draw.random() < 0.5)
            if draw.random() < 0.5:
                shop.places -= {draw.choice(bad)}
        shop.show_all()
        shop.places.clear()
        shop.start()
        shop.turn(80)
        marked(shop)
        shop.transact((VISITS, "c", (50, 1)))
        shop.show_all()
        shop.turn(80)
        check(shop)
        shop.end()


def test_bad_records_of_several_partitions_in_one_poll_are_all_read_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    inner = test_whatever_comes_when_and_whenever_it_is_killed.hypothesis.inner_test  # type: ignore[attr-defined]
    inner(tmp_path_factory, 52559)


@pytest.mark.parametrize("restart", [False, True])
def test_a_partition_that_appears_while_its_table_stands_still_is_read_again_too(shop: Little, restart: bool) -> None:
    """Whether the sidecar was running then, or finds it at a start after which the table stands still as before."""
    shop.show_all()
    shop.start()
    shop.turn(2)
    shop.places.update(shop.transact((ORDERS, "u", (1, 3))))
    shop.show_all()
    shop.turn(3)
    assert shop.stopped() == [ORDERS]
    if restart:
        shop.end(drained=True)
    shop.wide.add(ORDERS)
    shop.transact((ORDERS, "c", (3, 1)), (ORDERS, "c", (2, 2)), (CUSTOMERS, "u", (1, 5)))
    shop.show_all()
    if restart:
        shop.start()
    shop.turn(3)
    assert shop.stopped() == [ORDERS]
    check(shop, *OVER[ORDERS])
    shop.transact((VISITS, "c", (3, 1)))
    shop.show_all()
    shop.turn(2)
    shop.end(drained=True)
    shop.places.clear()
    shop.start()
    shop.turn(4)
    assert shop.stopped() == []
    check(shop)


def marked(shop: Little) -> None:
    """What is not marked is right, and what is marked is right at some frontier before."""
    assert shop.running is not None
    if shop.store.frontier is None or shop.running.runtime.hold:
        return
    lsn = shop.store.frontier.sources["shop"].place.order
    wanted = answers(shop.states[lsn])
    for view, rows in wanted.items():
        if view not in shop.in_error():
            assert shop.rows(view) == rows, (view, lsn)
        else:
            assert shop.rows(view) in [{}, *(answers(s)[view] for at, s in shop.states.items() if at <= lsn)]
