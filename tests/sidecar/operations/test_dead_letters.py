"""Records that are set aside: their table goes on without them, and they are taken in, or let go of, at the user's word."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.connectors.dead_letters import DeadLetter, DeadLetterError, DeadLetterQueue, MemoryDeadLetterQueue
from headrace.connectors.kafka.dead_letters import KafkaDeadLetterQueue
from headrace.sidecar.config.config import load
from headrace.sidecar.control.jobs import BackgroundJobs
from headrace.sidecar.process.status_board import status
from headrace.sidecar.wiring import intakes
from tests.sidecar.operations.test_resync import Now, turn_held
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VISITS, Little, Place, answers


class Aside(Little):
    """A shop that sets aside what cannot be decoded. `letters`: those."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch)
        self.letters = MemoryDeadLetterQueue()
        self.told: list[Any] = []
        patch.setattr(intakes, "make_dead_letters", lambda _: self.letters)

    def configure(self) -> dict[str, Any]:
        body = super().configure()
        body["sources"][0]["on_undecodable"] = "dead_letter"
        return body

    def again(self) -> Any:
        self.ask()
        self.turn(3)
        told = self.told.pop()
        return told if not isinstance(told, dict) else [x["outcome"] for x in told["letters"]]

    def ask(self) -> None:
        """Have all of them replayed."""
        assert self.running is not None
        settings = load(self.folder / "headrace.yaml", {})
        jobs = BackgroundJobs(self.running.runtime, settings, executor=Now())  # type: ignore[arg-type]
        jobs.replay(self.letters.read(), self.told.append)

    def go(self) -> None:
        self.show_all()
        self.turn(3)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aside]:
    with Aside(tmp_path, monkeypatch).begun({CUSTOMERS: [(1, 1), (2, 2)], ORDERS: [(1, 1)], VISITS: [(1, 1)]}) as made:
        yield made


def spoilt(shop: Aside) -> Place:
    """One bad record of a customer among others of its transaction."""
    (_, bad, _) = shop.transact((ORDERS, "c", (2, 2)), (CUSTOMERS, "u", (2, 9)), (CUSTOMERS, "c", (3, 3)))
    shop.places.add(bad)
    shop.go()
    return bad


def test_the_table_goes_on_without_the_record(shop: Aside) -> None:
    bad = spoilt(shop)
    assert shop.in_error() == set()
    assert shop.stopped() == []
    assert shop.rows("customers") == {(1, 1): 1, (2, 2): 1, (3, 3): 1}
    assert shop.rows("orders") == {(1, 1): 1, (2, 2): 1}
    [letter] = shop.letters.read()
    assert (letter.topic, letter.partition, letter.offset) == bad
    assert (letter.source, letter.table, letter.reason) == ("shop", CUSTOMERS, "broken")
    assert letter.id == f"{bad[0]}/{bad[1]}/{bad[2]}"
    assert orjson.loads(letter.value or b"")["after"] == {"id": 2, "v": 9}
    assert "value" not in letter.facts()
    assert status(shop.running)["sources"][0]["dead_letters"] == {CUSTOMERS: 1}
    for drained in (False, True):
        shop.end(drained=drained)
        shop.start()
        shop.transact((CUSTOMERS, "u", (1, 4 + drained)))
        shop.go()
        assert len(shop.letters.read()) == 1, "kept twice it is one"
        assert shop.rows("customers") == {(1, 4 + drained): 1, (2, 2): 1, (3, 3): 1}


def test_one_that_can_be_read_again_is_taken_in(shop: Aside) -> None:
    spoilt(shop)
    assert shop.again() == ["refused"], "it cannot be decoded yet"
    shop.places.clear()
    assert shop.again() == ["applied"]
    wanted = answers(shop.state)
    assert {v: shop.rows(v) for v in wanted} == wanted
    assert shop.again() == ["applied"], "taken in twice it changes what it changed once"
    assert {v: shop.rows(v) for v in wanted} == wanted
    shop.end()
    shop.start()
    shop.go()
    assert {v: shop.rows(v) for v in wanted} == wanted


def test_one_is_said_to_be_applied_once_a_sink_has_it(shop: Aside) -> None:
    """Simulator, seed 500182: a run that another had taken over from applied it in a log that nobody read again."""
    spoilt(shop)
    shop.places.clear()
    shop.ask()
    with pytest.MonkeyPatch.context() as patch:
        turn_held(shop, patch)
    assert shop.told == []
    shop.turn(2)
    assert [x["outcome"] for x in shop.told.pop()["letters"]] == ["applied"]


def test_one_that_can_be_read_by_now_stays_a_letter_after_a_death(shop: Aside) -> None:
    """The sink has its transaction without it: a run that reads that again, and takes it in, would never tell the sink."""
    spoilt(shop)
    without = shop.rows("customers")
    shop.places.clear()
    for id_ in (8, 9):
        shop.end(drained=False)
        shop.start()
        shop.transact((ORDERS, "c", (id_, 9)))
        shop.go()
        assert shop.rows("customers") == without
    assert shop.again() == ["applied"]
    shop.letters.discard([letter.id for letter in shop.letters.read()])
    for drained in (False, True):
        assert shop.rows("customers") == answers(shop.state)["customers"]
        shop.end(drained=drained)
        shop.start()
        shop.transact((CUSTOMERS, "u", (2, 5)))
        shop.go()
    assert shop.rows("customers") == answers(shop.state)["customers"]


def test_one_of_before_the_snapshot_that_counts_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connector that was killed before its snapshot was kept takes another one, after it has sent transactions."""
    with Aside(tmp_path, monkeypatch).begun({ORDERS: [(1, 1)]}) as shop:
        shop.end()
        shutil.rmtree(tmp_path / "state")
        bad = shop.transact((CUSTOMERS, "c", (2, 9)))[0]
        shop.places.add(bad)
        shop.show_all()
        shop.snapshot({ORDERS: [(1, 1)], CUSTOMERS: [(5, 5)]})
        shop.show_all()
        shop.start()
        shop.turn(3)
        shop.places.clear()
        assert shop.again() == ["superseded"]
        assert shop.rows("customers") == {(5, 5): 1}


def repeated(shop: Aside) -> None:
    """The connector sends the record once more, when the configuration is corrected."""
    [letter] = shop.letters.read()
    shop.places.clear()
    shop.log.append(letter.topic, letter.value, key=letter.key, partition=letter.partition)
    shop.go()


def test_a_copy_of_it_is_no_later_record(shop: Aside) -> None:
    spoilt(shop)
    repeated(shop)
    assert shop.again() == ["applied"]
    assert shop.rows("customers") == answers(shop.state)["customers"]


def test_a_copy_of_it_is_not_taken_in_after_a_death(shop: Aside) -> None:
    """It was no part of the transaction when that was bound, and may be met before that is given again."""
    spoilt(shop)
    without = shop.rows("customers")
    repeated(shop)
    shop.end(drained=False)
    shop.start()
    shop.transact((ORDERS, "c", (9, 9)))
    shop.go()
    assert shop.rows("customers") == without
    assert shop.again() == ["applied"]
    assert shop.rows("customers") == answers(shop.state)["customers"]


def test_one_whose_transaction_is_not_whole_yet_waits_for_it(shop: Aside) -> None:
    [_, bad] = shop.transact((ORDERS, "c", (2, 2)), (CUSTOMERS, "u", (2, 9)))
    shop.places.add(bad)
    shop.show(f"shop.{CUSTOMERS}")
    shop.turn(3)
    shop.places.clear()
    shop.ask()
    shop.turn(3)
    assert shop.told == []
    shop.go()
    [told] = shop.told
    assert [x["outcome"] for x in told["letters"]] == ["applied"]
    assert shop.rows("customers") == answers(shop.state)["customers"]


def test_one_that_a_later_record_follows_changes_nothing(shop: Aside) -> None:
    spoilt(shop)
    shop.transact((CUSTOMERS, "u", (2, 5)), (CUSTOMERS, "d", (3, 3)))
    shop.go()
    shop.places.clear()
    before = shop.running.runtime.epoch
    assert shop.again() == ["superseded"]
    assert shop.running.runtime.epoch == before
    wanted = answers(shop.state)
    assert {v: shop.rows(v) for v in wanted} == wanted


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("id_", [1, 2])
def test_one_that_a_truncate_follows_changes_nothing(shop: Aside, id_: int, restart: bool) -> None:
    """The TRUNCATE has no key, and stands in any partition."""
    (bad,) = shop.transact((CUSTOMERS, "u", (id_, 9)))
    shop.places.add(bad)
    shop.truncate(CUSTOMERS)
    shop.go()
    assert shop.rows("customers") == {}
    shop.places.clear()
    if restart:
        shop.end(drained=True)
        shop.start()
    assert shop.again() == ["superseded"]
    assert shop.rows("customers") == {}


@pytest.mark.parametrize("restart", [False, True])
def test_one_that_a_later_snapshot_does_not_have_changes_nothing(shop: Aside, restart: bool) -> None:
    """A row that went while the slot was lost has no event."""
    (bad,) = shop.transact((CUSTOMERS, "u", (1, 9)))
    shop.places.add(bad)
    shop.go()
    for rows in shop.state.values():
        rows.clear()
    shop.snapshot({CUSTOMERS: [(2, 2)], ORDERS: [(1, 1)], VISITS: []})
    shop.go()
    assert shop.rows("customers") == {(2, 2): 1}
    shop.places.clear()
    if restart:
        shop.end(drained=True)
        shop.start()
    assert shop.again() == ["superseded"]
    assert shop.rows("customers") == {(2, 2): 1}


def test_one_of_a_table_without_a_key_is_refused(shop: Aside) -> None:
    (bad,) = shop.transact((VISITS, "c", (5, 5)))
    shop.places.add(bad)
    shop.go()
    assert shop.rows("visits") == {(1, 1): 1}
    shop.places.clear()
    assert shop.again() == ["refused"]
    assert shop.rows("visits") == {(1, 1): 1}


def test_an_envelope_that_cannot_be_read_stops_its_table(shop: Aside) -> None:
    """Its transaction counts an event that nobody could tell to be this one."""
    shop.end()
    shop.readable = False
    shop.start()
    spoilt(shop)
    assert shop.stopped() == [CUSTOMERS]
    assert shop.letters.read() == []


def test_nothing_is_bound_behind_a_letter_that_could_not_be_kept(shop: Aside) -> None:
    shop.letters.broken = True
    before = dict(shop.rows("orders"))
    with pytest.raises(DeadLetterError, match="cannot be kept"):
        spoilt(shop)
    assert shop.rows("orders") == before
    shop.end()
    shop.letters.broken = False
    shop.start()
    shop.go()
    assert len(shop.letters.read()) == 1
    assert shop.rows("customers") == {(1, 1): 1, (2, 2): 1, (3, 3): 1}


def letter(offset: int, value: bytes | None = b"\xff{", reason: str = "no") -> DeadLetter:
    return DeadLetter("shop", "public.t", "shop.public.t", 3, offset, reason, "hint", 7, 1_700_000_000_000, b"k", value)


def contract(letters: DeadLetterQueue) -> None:
    """What every implementation does."""
    assert list(letters.read()) == []
    letters.discard(["shop.public.t/3/1"])
    letters.keep([letter(1), letter(2, None)])
    letters.keep([])
    letters.keep([letter(1, reason="again"), letter(5)])
    assert list(letters.read()) == [letter(1), letter(2, None), letter(5)]
    letters.discard([letter(2).id, "nothing/0/0"])
    assert list(letters.read()) == [letter(1), letter(5)]
    letters.discard([letter(1).id, letter(5).id])
    assert list(letters.read()) == []
    letters.keep([letter(9)])
    assert list(letters.read()) == [letter(9)]


def test_in_memory() -> None:
    contract(MemoryDeadLetterQueue())


def test_in_kafka(kafka: str, unique: str) -> None:
    contract(KafkaDeadLetterQueue({"bootstrap.servers": kafka}, f"headrace.{unique}.deadletters"))
    again = KafkaDeadLetterQueue({"bootstrap.servers": kafka}, f"headrace.{unique}.deadletters")
    assert list(again.read()) == [letter(9)], "they outlive who kept them"


def test_without_a_broker() -> None:
    nobody = KafkaDeadLetterQueue({"bootstrap.servers": "127.0.0.1:1"}, "t", patience=1.0)
    with pytest.raises(DeadLetterError):
        nobody.keep([letter(1)])
    with pytest.raises(DeadLetterError):
        nobody.read()


def test_a_replayed_letter_outlives_the_state(shop: Aside) -> None:
    [place] = shop.transact((CUSTOMERS, "u", (1, 7)))
    shop.places.add(place)
    shop.go()
    shop.places.clear()  # the configuration is mended
    assert shop.again() == ["applied"]
    shop.letters.discard([x.id for x in shop.letters.read()])
    for readable in (True, False):  # a lost state reads the record as a row, or sets it aside again
        shop.end(drained=True)
        shutil.rmtree(shop.folder / "state")
        shop.places |= set() if readable else {place}
        shop.start()
        assert shop.running is not None
        log = shop.running.runtime.parts.commands
        assert [c.letter for c in log.to_replay()] == ["/".join(map(str, place))]
        settings = load(shop.folder / "headrace.yaml", {})
        letters = lambda _: shop.letters  # noqa: E731
        jobs = BackgroundJobs(shop.running.runtime, settings, executor=Now(), letters=letters)  # type: ignore[arg-type]
        for _ in range(3):
            shop.turn(2)
            assert shop.rows("customers") == answers(shop.state)["customers"], "no mended answer turns wrong again"
        assert set(log.open) == {CUSTOMERS}
        shop.places.clear()
        for _ in range(4):
            jobs.look()
            shop.transact()
            shop.go()
        assert log.open == {}
        assert list(shop.letters.read()) == []
        assert shop.in_error() == set()
        assert {v: shop.rows(v) for v in answers(shop.state)} == answers(shop.state)
