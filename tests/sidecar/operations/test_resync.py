"""A table that is not as its source has it becomes so by one epoch, exactly, and survives whatever comes between."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.commit_place import Lsn
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.config.config import load
from headrace.sidecar.control.jobs import BackgroundJobs, RequestError
from headrace.sidecar.operations.resync import TableRead, parse
from headrace.sidecar.state.synthetic_transactions import Injected, InjectedError, injected
from headrace.sidecar.transactions.model import Resync
from tests.sidecar.support.little import CUSTOMERS, KEYS, ORDERS, PREFIX, VISITS, Little, Row, answers, plays


class Source:
    """A source database that is read when the test says so. `state`: what it holds beyond what the topics told."""

    def __init__(self, shop: Little) -> None:
        self.shop, self.reads = shop, 0

    def read(self, _url: str, table: str, _schema: Schema) -> TableRead:
        self.reads += 1
        held = self.shop.state[table]
        return TableRead(self.shop.lsn, pa.array([f"{i}\t{v}" for i, v in (+held).elements()], pa.large_string()))


class Now:
    """An executor that does what it is given at once."""

    def submit(self, call: Any, *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args))
        except HeadraceError as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None:
        """Nothing to end."""


class Asked(Little):
    """A shop that can be asked to resync a table; `told` is what was answered."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **more: Any) -> None:
        super().__init__(folder, patch, **more)
        self.told: list[Any] = []

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        body["sources"][0]["database"] = "postgresql://nobody@127.0.0.1:9/x"
        return body

    def ask(self, table: str) -> None:
        assert self.running is not None

        settings = load(self.folder / "headrace.yaml", {})
        jobs = BackgroundJobs(self.running.runtime, settings, Source(self).read, Now())  # type: ignore[arg-type]
        jobs.resync(table, None, self.told.append)

    def diverge(self, table: str, *, drop: list[Row] = (), add: list[Row] = ()) -> None:  # type: ignore[assignment]
        """The source has other rows than its topics tell."""
        for row in drop:
            self.state[table][row] -= 1
        for row in add:
            self.state[table][row] += 1
        self.state[table] = +self.state[table]

    def beat(self) -> None:
        """A transaction of nothing moves the LSN on."""
        self.transact()
        self.show_all()
        self.turn(3)

    def is_right(self) -> None:
        wanted = answers(self.state)
        assert self.in_error() == set()
        for view, rows in wanted.items():
            assert self.rows(view) == rows, view


@pytest.fixture(params=["driver", "shards"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    with Asked(tmp_path, monkeypatch, intake=request.param).begun(
        {CUSTOMERS: [(1, 5), (2, 6), (3, 7)], ORDERS: [(1, 1), (2, 2)], VISITS: [(1, 1), (1, 1), (2, 1)]}
    ) as made:
        yield made


def wrong(shop: Asked) -> None:
    """Rows that are missing, other and too many, in a keyed and a keyless table."""
    shop.diverge(CUSTOMERS, drop=[(1, 5), (3, 7)], add=[(1, 50), (9, 9)])
    shop.diverge(VISITS, drop=[(1, 1)], add=[(4, 4), (4, 4), (2, 1)])


def test_nothing_is_told_before_it_is_on_disk(shop: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong(shop)
    shop.transact()
    shop.ask(CUSTOMERS)

    def full() -> None:
        if any(isinstance(kept, Resync) and kept.whole for _, kept in bound):
            raise OSError("no space left")

    bound: list[Any] = []
    reclock, bind = shop.running.runtime.parts.reclock, shop.running.runtime.parts.reclock.bind
    monkeypatch.setattr(reclock, "bind", lambda batch: bound.extend(enumerate(batch.transactions)) or bind(batch))
    monkeypatch.setattr(reclock, "settle", full)
    shop.transact()
    shop.show_all()
    with pytest.raises(OSError, match="no space"):
        shop.turn(5)
    assert shop.told == []


def turn_held(shop: Little, patch: pytest.MonkeyPatch) -> None:
    """Some turns, of which the sink hears nothing until `patch` is undone."""
    [writer] = shop.running.runtime.parts.writers
    offered: list[Any] = []
    offer = writer.offer
    patch.setattr(writer, "offer", lambda *given: offered.append(given))
    for _ in range(5):
        shop.hear()
        shop.running.runtime.turn(0.0)
    assert offered, "there is something to tell"
    for given in offered:
        offer(*given)


def test_it_is_told_once_a_sink_has_it(shop: Asked) -> None:
    shop.diverge(ORDERS, add=[(9, 9)])
    shop.transact()
    shop.show_all()
    shop.ask(ORDERS)
    with pytest.MonkeyPatch.context() as patch:
        turn_held(shop, patch)
    assert shop.told == []
    shop.turn(2)
    assert shop.told.pop()["added"] == 1
    shop.is_right()


def test_what_differs_becomes_one_epoch_and_is_counted(shop: Asked) -> None:
    wrong(shop)
    shop.transact()
    shop.ask(CUSTOMERS)
    shop.turn()
    assert shop.told == [], "the source was read beyond what is in"
    epochs = shop.running.runtime.epoch
    shop.beat()
    told = shop.told.pop()
    assert {k: told[k] for k in ("table", "rows", "added", "changed", "removed")} == {
        "table": CUSTOMERS, "rows": 3, "added": 1, "changed": 1, "removed": 1,
    }  # fmt: skip
    assert told["epoch"] == shop.running.runtime.epoch == epochs + 3
    assert shop.rows("customers") == {(1, 50): 1, (2, 6): 1, (9, 9): 1}
    shop.transact((VISITS, "d", (4, 4)))
    shop.show_all()
    shop.turn(2)
    assert shop.in_error() == {"visits"}, "what is not there cannot be taken away"
    shop.ask(VISITS)
    shop.beat()
    told = shop.told.pop()
    assert (told["added"], told["changed"], told["removed"]) == (2, 0, 1)
    shop.is_right()
    shop.ask(VISITS)
    shop.turn(3)
    assert [shop.told[0][k] for k in ("added", "changed", "removed")] == [0, 0, 0]


def test_later_transactions_stand(shop: Asked) -> None:
    """What the stream sets after the read is right already, and what it removed does not come back."""
    wrong(shop)
    shop.ask(CUSTOMERS)
    shop.turn()
    shop.transact((CUSTOMERS, "u", (1, 77)), (CUSTOMERS, "d", (2, 6)), (VISITS, "c", (8, 8)))
    shop.show_all()
    shop.turn(3)
    assert shop.told
    assert shop.rows("customers") == {(1, 77): 1, (9, 9): 1}
    shop.ask(VISITS)
    shop.turn()
    shop.transact((VISITS, "c", (4, 4)), (VISITS, "d", (2, 1)))
    shop.show_all()
    shop.turn(3)
    shop.is_right()


@pytest.mark.parametrize("drained", [True, False])
def test_a_restart_gives_the_epoch_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drained: bool
) -> None:
    shop = Asked(tmp_path, monkeypatch, every_turn=False)
    shop.snapshot({CUSTOMERS: [(1, 5), (2, 6), (3, 7)], VISITS: [(1, 1)]})
    shop.show_all()
    shop.start()
    shop.turn(2)
    wrong_rows = Counter(shop.rows("customers"))
    shop.diverge(CUSTOMERS, drop=[(1, 5), (3, 7)], add=[(1, 50), (9, 9)])
    shop.ask(CUSTOMERS)
    shop.turn()
    shop.transact((CUSTOMERS, "c", (20, 20)))
    shop.show_all()
    shop.turn(3)
    assert shop.told
    assert shop.rows("customers") != wrong_rows
    kept = list((tmp_path / "state").rglob("*.rows"))
    assert len(kept) == 1, "its rows are on disk until a checkpoint has them"
    shop.end(drained=drained)
    shop.start()
    assert bool(list((tmp_path / "state" / "generations" / "000002").rglob("*.rows"))) is not drained
    shop.transact((CUSTOMERS, "c", (30, 30)), (VISITS, "c", (3, 3)))
    shop.show_all()
    shop.turn(3)
    shop.is_right()
    shop.end()


def test_rows_that_were_altered_on_disk_are_named(shop: Asked, tmp_path: Path) -> None:
    at = tmp_path / "rows"
    kept = Injected(at)
    schema = Schema.of([Column("id", DataType.parse("bigint"), False)], ["id"])
    transaction = injected("public.t", parse(schema, ["1", "2"]), np.array([0, 1], np.uint8), Lsn(5), 6, {"no": -2})
    kept.keep(7, transaction)
    again = kept.load(7)
    assert (again.table, again.whole, again.place, again.commit_us) == ("public.t", True, Lsn(5), 6)
    assert again.errors == {"public.t": {"no": -2}}
    assert again.slices[0].changes.rows.equals(transaction.slices[0].changes.rows)
    assert again.slices[0].changes.kinds.tolist() == [0, 1]
    data = bytearray((at / "7.rows").read_bytes())
    data[-3] ^= 1
    (at / "7.rows").write_bytes(data)
    with pytest.raises(InjectedError, match=r"7\.rows"):
        kept.load(7)
    kept.forget(7)
    with pytest.raises(InjectedError):
        kept.load(7)


def test_a_table_with_a_lost_column_is_whole_again(shop: Asked) -> None:
    topic = f"{PREFIX}.{CUSTOMERS}"
    shop.transact((CUSTOMERS, "u", (1, 8)))
    partition, value, key = shop.queues[topic].pop()
    shop.queues[topic].append((partition, value.replace(b'"v": 8', b'"w": 8'), key))
    shop.show_all()
    shop.turn(2)
    assert shop.in_error() == {"customers", "by_city"}
    shop.ask(CUSTOMERS)
    shop.beat()
    assert shop.told[0]["changed"] == 1
    shop.is_right()
    shop.end(drained=True)
    shop.start()
    shop.beat()
    shop.is_right()


def test_what_cannot_be_done_is_answered(shop: Asked) -> None:
    with pytest.raises(RequestError, match=CUSTOMERS):
        shop.ask("public.nothing")
    (bad,) = shop.transact((CUSTOMERS, "u", (1, 8)))
    shop.places.add(bad)
    shop.show_all()
    shop.turn(2)
    shop.ask(CUSTOMERS)
    shop.turn()
    assert "is suspended" in str(shop.told[0])


@plays(8)
def test_whatever_differs_and_whatever_comes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, intake: str
) -> None:
    draw = random.Random(seed)
    shop = Asked(tmp_path, monkeypatch, every_turn=draw.random() < 0.5, intake=intake)
    shop.snapshot({t: [(i, draw.randrange(1, 6)) for i in range(1, draw.randrange(1, 5))] for t in KEYS})
    shop.show_all()
    shop.start()
    shop.turn(2)
    for _ in range(3):
        table = draw.choice(list(KEYS))
        drop = [r for r in sorted(shop.state[table]) if shop.state[table][r] > 0 and draw.random() < 0.4]
        taken = {r[0] for r in shop.state[table]} - {r[0] for r in drop}
        add = [(i, draw.randrange(1, 6)) for i in range(1, 12) if i not in taken and draw.random() < 0.3]
        shop.diverge(table, drop=drop, add=add)
        shop.ask(table)
        for _ in range(draw.randrange(1, 6)):
            shop.random(draw)
            shop.show_all() if draw.random() < 0.5 else None
            shop.turn(draw.randrange(0, 3))
        shop.show_all()
        shop.turn(4)
        assert len(shop.told) == 1
        assert isinstance(shop.told.pop(), dict)
        if draw.random() < 0.5:
            shop.end(drained=draw.random() < 0.5)
            shop.start()
        shop.beat()
        shop.is_right()
    shop.end()


class Altered(Asked):
    """Customers' records lack their column v while it is `gone`."""

    gone = False

    def queue(self, topic: str, value: dict[str, Any], partition: int = 0, key: bytes | None = None) -> Any:
        for image in (value.get("before"), value.get("after")):
            if self.gone and topic == f"{PREFIX}.{CUSTOMERS}" and image is not None:
                del image["v"]
        return super().queue(topic, value, partition, key)


def test_a_column_that_goes_after_the_table_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the row that lacks it, which the resync lets stand, would be in a view that goes on."""
    with Altered(tmp_path, monkeypatch).begun({CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)]}) as shop:
        shop.transact()
        shop.ask(CUSTOMERS)
        shop.turn()
        shop.gone = True
        shop.transact((CUSTOMERS, "u", (1, 9)))
        shop.show_all()
        shop.turn(4)
        shop.is_right()
        assert shop.told[0]["changed"] == 1


def test_a_column_that_went_after_a_resync_stays_lost_when_both_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Altered(tmp_path, monkeypatch, every_turn=False).begun(
        {CUSTOMERS: [(1, 5), (2, 6)], ORDERS: [(1, 1)]}
    ) as shop:
        shop.end(drained=True)
        shop.start()
        for shop.gone in (True, False):
            shop.transact((CUSTOMERS, "u", (1, 5)))
        shop.ask(CUSTOMERS)
        shop.show_all()
        shop.turn(3)
        assert shop.told
        assert not shop.in_error()
        shop.gone = True
        shop.transact((CUSTOMERS, "u", (1, 9)))
        shop.show_all()
        shop.turn(2)
        for _ in range(2):
            assert shop.in_error() == {"customers", "by_city"}
            assert shop.rows("customers") == {(1, 5): 1, (2, 6): 1}
            shop.end()
            shop.start()
            shop.transact((CUSTOMERS, "u", (2, 9)))
            shop.show_all()
            shop.turn(4)
