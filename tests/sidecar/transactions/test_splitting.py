"""A transaction of more rows than a step takes in comes in portions: bound, stepped one by one, and published as a whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.sidecar.epochs.reclock import ReclockLog
from headrace.sidecar.runtime import loop
from headrace.sidecar.transactions.model import Transaction
from headrace.sidecar.transactions.partial import RowRange
from headrace.sidecar.transactions.splitting import in_steps, portions
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, VISITS, Little, answers, plays
from tests.sidecar.support.streams import changes
from tests.sidecar.support.transactions import transaction_of


def given(kind: str, *orders: list[int]) -> Transaction:
    """A transaction of one slice each of these orders."""
    made = [
        changes("s.a", [(i, i) for i in some], txid=4, orders=some, offset=100 * k) for k, some in enumerate(orders)
    ]
    return transaction_of(kind, 4, 9, 1, tuple(RowRange(c, 0, len(c)) for c in made), errors={"s.a": {"bad": 1}})


def orders(transaction: Transaction) -> list[list[int]]:
    return [s.changes.orders[s.start : s.stop].tolist() for s in transaction.slices]


def test_a_transaction_is_cut_by_the_order_of_its_events_and_a_snapshot_where_its_rows_stand() -> None:
    found = portions(given("transaction", [1, 4, 4, 9], [2, 3, 8]), 4)
    assert [orders(p) for p in found] == [[[1], [2, 3]], [[4, 4]], [[9], [8]]]
    assert [(p.more, dict(p.errors)) for p in found] == [(True, {}), (True, {}), (False, {"s.a": {"bad": 1}})]
    assert {(p.id, p.place.order, p.kind) for p in found} == {(4, 9, "transaction")}
    found = portions(given("snapshot", [-1, -1, -1], [-1, -1]), 2)
    assert [orders(p) for p in found] == [[[-1, -1]], [[-1], [-1]], [[-1]]]


def test_what_is_small_or_cannot_be_cut_stays_as_it_is() -> None:
    for one in (given("transaction", [1, 2]), given("cut", [1, 2, 3, 4]), given("transaction", [2, 1, 3, 4])):
        assert portions(one, 3) == [one]


def test_steps_are_of_so_many_rows_but_for_larger_epochs() -> None:
    sizes = [1, 2, 9, 1, 1, 1, 1]
    pairs = [(e, given("transaction", list(range(1, n + 1)))) for e, n in enumerate(sizes, 1)]
    assert [[e for e, _ in some] for some in in_steps(pairs, 3)] == [[1, 2], [3], [4, 5, 6], [7]]


@plays(8)
def test_a_shop_whose_transactions_come_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, intake: str
) -> None:
    draw = random.Random(seed)
    size = draw.choice([1, 2, 3])
    monkeypatch.setattr(loop, "ROWS", size)
    shop = Little(tmp_path, monkeypatch, every_turn=draw.random() < 0.5, intake=intake)
    shop.batch = draw.choice([1, 3, 1 << 16])

    given: set[int] = set()
    """The epochs of all changes that the sink was given."""

    def start() -> None:
        shop.start()
        assert shop.running is not None
        shop.running.runtime.told.append(lambda _, told: given.update(*(c.epochs.tolist() for c in told.values())))
        for intake in shop.running.runtime.parts.intakes:
            intake.portion_rows = size

    def check() -> None:
        at = shop.store.frontier
        if at is not None:
            wanted = answers(shop.states[at.sources["shop"].place.order])
            assert {v: shop.rows(v) for v in wanted} == wanted

    shop.snapshot({t: [(i, draw.randrange(1, 6)) for i in range(1, 6)] for t in KEYS})
    for _ in range(10):
        shop.random(draw)
    shop.transact(
        *((VISITS, "c", (i, 1)) for i in range(20)),
        *((ORDERS, "c", (i, 1)) for i in range(50, 60)),
        (CUSTOMERS, "c", (90, 1)),
    )
    start()
    for _ in range(30):
        for topic in list(shop.queues):
            shop.show(topic, min(len(shop.queues[topic]), draw.randrange(0, 9)))
        if draw.random() < 0.2:
            shop.end(drained=draw.random() < 0.5)
            start()
        shop.turn()
        check()
    shop.show_all()
    shop.turn(100)
    check()
    assert shop.store.frontier is not None
    assert shop.store.frontier.sources["shop"].place.order == shop.lsn
    inside = _inside(shop)
    assert inside, "the large transaction at least was cut"
    assert not inside & ({f.epoch for f, _ in shop.store.history} | given)
    shop.end()


def _inside(shop: Little) -> set[int]:
    """The epochs that end no transaction: of each (id, lsn) in the log all but the last."""
    assert shop.running is not None
    seen: dict[tuple[int, int], int] = {}
    inside: set[int] = set()
    log = ReclockLog(shop.running.generation.log)
    for binding in log.bindings:
        for epoch, stamp in enumerate(binding.stamps, binding.first):
            before = seen.get((stamp.id, stamp.place))
            if before is not None:
                inside.add(before)
            seen[stamp.id, stamp.place] = epoch
    log.close()
    return inside


@pytest.mark.parametrize("sizes", [(3, 1), (1, 3)])
def test_a_restart_with_other_portions_goes_on_in_those_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    shop = Little(tmp_path, monkeypatch, every_turn=False)
    shop.snapshot({t: [(1, 1)] for t in KEYS})
    shop.transact(*((VISITS, "c", (i, 1)) for i in range(4)))
    shop.show_all()
    epochs = []
    for size in sizes:
        shop.start()
        assert shop.running is not None
        shop.running.runtime.parts.intakes[0].portion_rows = size
        shop.turn(20)
        epochs.append(shop.running.runtime.epoch)
        assert {v: shop.rows(v) for v in answers(shop.state)} == answers(shop.state)
        shop.end()
    assert epochs[0] == epochs[1]
