"""Tables of a publisher that are filled beside a running sidecar: exact at the seam, in one epoch, whatever is killed when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.commit_place import Version
from headrace.engine.errors import HeadraceError
from headrace.sidecar.control import apply as applying
from headrace.sidecar.control.plan import ApplyError
from headrace.sidecar.state.checkpoint import CheckpointError
from tests.sidecar.support.lakeside import A, B, C, Lakeside, joined
from tests.sidecar.support.little import plays

SET_UPS = {
    "no checkpoint": (False, 1, "driver"),
    "a checkpoint a turn": (True, 1, "driver"),
    "two workers": (False, 2, "driver"),
    "two workers that read": (False, 2, "shards"),
}


@pytest.fixture(params=SET_UPS.values(), ids=SET_UPS.keys())
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lakeside]:
    every_turn, workers, intake = request.param
    made = Lakeside(tmp_path, monkeypatch, every_turn=every_turn, workers=workers, intake=intake)
    yield made
    made.close()


def begun(lake: Lakeside, *versions: int) -> None:
    """A runs, at the last of these versions."""
    for version in versions:
        lake.publish(version, {A: {i: i * version for i in range(1, 6)}})
    lake.start()
    lake.turn(3)
    lake.check()


def with_b(lake: Lakeside) -> None:
    """B is declared from now on, and views read it."""
    lake.declared = {"lake": [A, B]}
    lake.read, lake.both = [A, B], True


def test_a_table_that_was_never_published_is_filled_and_goes_on(lake: Lakeside) -> None:
    begun(lake, 1, 2)
    epoch = lake.running.runtime.epoch  # type: ignore[union-attr]
    with_b(lake)
    lake.state[B] = {1: 10, 2: 20, 9: 90}
    [report] = lake.load({B: lake.state[B]}, None)
    assert (report["version"], report["rows"], report["added"], report["epoch"]) == ("2", 3, 3, epoch + 1)
    lake.check()
    assert lake.unproven == set()
    assert {len(h["vb"]) for _, h in lake.store.history if "vb" in h} <= {0, 3}, "in one epoch"
    lake.publish(3, {B: {1: 11, 9: 90, 10: 100}})
    lake.publish(4, {A: {1: 7, 10: 8}, B: {9: 91, 10: 100}})
    lake.turn(3)
    lake.check()
    lake.end(drained=True)
    lake.publish(5, {B: {9: 92}})
    lake.start()
    lake.turn(3)
    lake.check()


def test_a_kill_after_the_rows_are_bound_loses_none(lake: Lakeside) -> None:
    begun(lake, 1, 2)
    with_b(lake)
    lake.state[B] = {i: i for i in range(1, 50)}
    lake.load({B: lake.state[B]}, None)
    lake.publish(3, {B: {i: i + 1 for i in range(2, 60)}})
    lake.turn(3)
    lake.end()
    lake.publish(4, {A: {1: 1}, B: {i: i + 2 for i in range(3, 60)}})
    lake.start()
    assert lake.unproven == (set() if lake.every_turn else {B}), "its epoch is read again from the log"
    lake.turn(4)
    assert lake.unproven == set()
    lake.check()


@pytest.mark.parametrize("published", [False, True])
def test_a_kill_before_the_rows_are_given_leaves_it_unproven_until_another_load(
    lake: Lakeside, *, published: bool
) -> None:
    begun(lake, 1, 2)
    with_b(lake)
    lake.state[B] = {1: 10, 2: 20, 3: 30}
    lake.begin_load({B: lake.state[B]}, None)
    lake.turn(2)
    lake.end()
    lake.start()
    lake.turn(2)
    assert lake.unproven == {B}
    assert "headrace load public.b" in lake.running.runtime.parts.commands.open[B].hint  # type: ignore[union-attr]
    assert set(lake.store.errors) == {"vb", "both"}
    if published:  # what comes before the next load is in the table, and its views wait
        lake.publish(3, {A: {1: 5, 2: 6}, B: {2: 21, 3: 30, 4: 40}})
        lake.turn(2)
        assert set(lake.store.errors) == {"vb", "both"}
        with pytest.raises(ApplyError, match="the table was published since the files"):
            lake.load({B: lake.states[3][B]}, 2)
    assert lake.held("va") == Counter(lake.state[A].items()), "the others go on"
    lake.load({B: lake.state[B]}, 3 if published else 2)
    lake.check()
    assert lake.unproven == set()
    assert not lake.store.errors
    lake.publish(9, {B: {7: 7}})
    lake.turn(3)
    lake.check()


def test_a_loader_that_dies_leaves_it_to_another_load(lake: Lakeside) -> None:
    begun(lake, 1)
    with_b(lake)
    lake.state[B] = {1: 10}
    _, _, fills, told = lake.begin_load({B: lake.state[B]}, None)
    fills[B].leave()
    lake.turn(2)
    [failed] = told
    assert isinstance(failed, HeadraceError)
    assert "nobody waits" in str(failed)
    assert lake.unproven == {B}
    lake.load({B: lake.state[B]}, 1)
    lake.check()


def test_a_change_that_fails_has_changed_nothing(lake: Lakeside, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(lake, 1)
    with_b(lake)
    lake.declared["other"] = [C]

    def fails(*_: Any) -> Any:
        raise ApplyError("it fails")

    with monkeypatch.context() as patched:
        patched.setattr(applying, "swap", fails)
        with pytest.raises(ApplyError, match="it fails"):
            lake.load({B: {1: 10}}, None)
    assert lake.unproven == set()
    assert lake.commands.read() == []
    lake.state[B] = {1: 10, 2: 20}
    lake.load({B: lake.state[B]}, None)
    lake.check()


def test_files_of_an_earlier_version_are_taken_where_nothing_was_published_since(lake: Lakeside) -> None:
    lake.publish(1, {B: {1: 1, 2: 2}})
    lake.publish(2, {B: {1: 1, 2: 3}})
    begun(lake, 3, 4)
    with_b(lake)
    with pytest.raises(ApplyError, match="nothing says which version") as caught:
        lake.load({B: lake.state[B]}, None)
    assert "published=2" in str(caught.value)
    with pytest.raises(ApplyError, match="published since the files, and the source has passed"):
        lake.load({B: {1: 1, 2: 2}}, 1)
    lake.load({B: lake.state[B]}, 2)
    lake.check()
    lake.publish(5, {B: {3: 3}})
    lake.turn(2)
    lake.check()
    lake.end()
    lake.start()
    lake.turn(4)
    lake.check()


def test_a_topic_whose_first_records_are_gone_does_not_prove_an_earlier_version(lake: Lakeside) -> None:
    for version in (1, 2, 3):
        lake.publish(version, {B: {1: version, 2: version}})
    begun(lake, 4)
    for p in range(2):
        lake.log.truncate("lake.public.b", p, lake.log.partitions["lake.public.b", p].end)
    with_b(lake)
    with pytest.raises(ApplyError, match="no longer all that was published"):
        lake.load({B: lake.state[B]}, 3)
    with pytest.raises(ApplyError, match="nothing says which version"):
        lake.load({B: lake.state[B]}, None)
    lake.load({B: lake.state[B]}, 4)
    lake.check()


def test_what_is_published_while_the_load_runs_is_found(lake: Lakeside, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of the table alone, and a later one of others that the source gives before the table is taken in."""
    begun(lake, 1)
    with_b(lake)
    real = applying.versions_of

    def later(*asked: Any) -> Any:
        found = real(*asked)
        lake.publish(2, {B: {1: 99}})
        lake.publish(3, {A: {1: 1}})
        lake.publish(4, {A: {1: 2}})
        while lake.running.runtime.sources["lake"].place < Version(4):  # type: ignore[union-attr]
            pass
        return found

    lake.configure()
    with monkeypatch.context() as patched:
        patched.setattr(applying, "versions_of", later)
        with pytest.raises(ApplyError, match="published since the files"):
            lake.meanwhile(lambda: lake.changing.apply(drop=False, filled={B: 1}))
    assert lake.unproven == set()
    lake.load({B: lake.state[B]}, 4)
    lake.check()


def test_what_does_not_fit_is_refused_by_name(lake: Lakeside) -> None:
    begun(lake, 1, 2)
    with_b(lake)
    lake.configure()
    with pytest.raises(ApplyError, match="is to be filled first") as caught:
        lake.meanwhile(lambda: lake.changing.apply(drop=False))
    assert "headrace load public.b" in str(caught.value)
    plan = lake.meanwhile(lambda: lake.changing.plan(drop=False))
    assert (plan.tables_added, plan.tables_to_load) == ((B,), (B,))
    with pytest.raises(ApplyError, match="the source has not come to the version"):
        lake.load({B: {}}, 3)
    with pytest.raises(ApplyError, match="reads the table already"):
        lake.load({A: {}}, 2)
    assert lake.unproven == set()
    lake.end(drained=True)
    with pytest.raises(CheckpointError, match="was not read before") as refused:
        lake.start()
    assert "headrace load" in str(refused.value)


def test_a_source_of_its_own_is_read_from_the_version_on_that_was_loaded(lake: Lakeside) -> None:
    """As a lake table is, whose versions have no clock in common with others."""
    begun(lake, 1)
    lake.publish(40, {C: {1: 1, 2: 2}}, prefix="prices")  # a publisher of before: the load has all of it
    lake.declared["prices"], lake.read = [C], [A, C]
    lake.state[C] = {2: 3, 4: 5}
    lake.load({C: lake.state[C]}, 41)
    assert lake.running.runtime.sources["prices"].place == Version(41)  # type: ignore[union-attr]
    lake.check()
    lake.publish(42, {C: {2: 4, 5: 5}}, prefix="prices")
    lake.publish(2, {A: {3: 3}})
    lake.turn(3)
    lake.check()
    lake.end()
    lake.publish(43, {C: {5: 6}}, prefix="prices")
    lake.start()
    lake.turn(4)
    lake.check()
    lake.end(drained=True)
    lake.start()
    lake.publish(44, {C: {}}, prefix="prices")
    lake.turn(3)
    lake.check()


def test_a_declared_table_that_nobody_reads_holds_no_version_up_and_can_be_filled(lake: Lakeside) -> None:
    lake.declared = {"lake": [A, B]}
    begun(lake, 1)
    lake.publish(2, {A: {1: 1}, B: {1: 1, 2: 2}})
    lake.publish(3, {B: {2: 3}})
    lake.turn(3)
    lake.check()
    with_b(lake)
    with pytest.raises(ApplyError, match="published since the files"):
        lake.load({B: lake.states[2][B]}, 2)
    lake.end(drained=True)  # what was passed is known of the topic alone
    lake.read, lake.both = [A], False
    lake.start()
    lake.turn(2)
    with_b(lake)
    with pytest.raises(ApplyError, match="published since the files"):
        lake.load({B: lake.states[2][B]}, 2)
    lake.publish(4, {B: {3: 6}, A: {2: 2}}, ends=False)  # an attempt that is under way
    lake.turn(2)
    lake.load({B: lake.state[B]}, 3)
    lake.check()
    lake.publish(4, {B: {3: 7}, A: {2: 2}}, attempt=2)
    lake.turn(2)
    lake.check()
    lake.end()
    lake.start()
    lake.turn(4)
    lake.check()


def test_a_lost_state_asks_for_the_load_again(lake: Lakeside, tmp_path: Path) -> None:
    begun(lake, 1, 2)
    with_b(lake)
    lake.state[B] = {1: 10, 2: 20}
    lake.load({B: lake.state[B]}, None)
    lake.end()
    (tmp_path / "state").rename(tmp_path / "lost")
    lake.start()
    lake.turn(3)
    assert lake.unproven == {B}
    assert set(lake.store.errors) == {"vb", "both"}
    lake.load({B: lake.state[B]}, 2)
    lake.turn(2)
    lake.check()


def drawn(draw: random.Random, rows: dict[int, int]) -> dict[int, int]:
    """Other rows."""
    kept = {i: v for i, v in rows.items() if draw.random() < 0.8}
    return kept | {draw.randrange(1, 12): draw.randrange(1, 5) for _ in range(draw.randrange(3))}


@plays(12)
def test_a_busy_publisher_and_kills_leave_every_state_one_of_its_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, intake: str
) -> None:
    draw = random.Random(seed)
    workers = 1 if intake == "driver" else 2
    lake = Lakeside(tmp_path, monkeypatch, every_turn=draw.random() < 0.3, workers=workers, intake=intake)
    version = 0

    def some(of: Sequence[list[str]] = ([A], [A], [A, B], [B])) -> None:
        nonlocal version
        if version < 60 and draw.random() < 0.3:
            version += draw.randrange(1, 3)
            tables = draw.choice(of) if lake.read == [A, B] else [A]
            rows = {t: drawn(draw, lake.state[t]) for t in tables}
            if draw.random() < 0.2:
                lake.publish(version, rows, ends=False)
                lake.publish(version, {t: drawn(draw, lake.state[t]) for t in tables}, attempt=2)
            else:
                lake.publish(version, rows)

    def publish(times: int) -> None:
        for _ in range(times):
            some()
            lake.turn()

    version += 1
    lake.publish(version, {A: {1: 1, 2: 2}})
    lake.start()
    publish(draw.randrange(1, 20))
    lake.turn(2)
    lake.state[B] = {i: draw.randrange(1, 5) for i in range(draw.randrange(1, 9))}
    files, at = dict(lake.state[B]), version
    lake.states[version] = {t: dict(r) for t, r in lake.state.items()}
    with_b(lake)
    if draw.random() < 0.5:
        lake.begin_load({B: files}, at)
        publish(draw.randrange(3))
        lake.end()
        lake.start()
        lake.turn(2)
        files, at = dict(lake.state[B]), version
        assert lake.unproven == {B}
    lake.load({B: files}, at, busy=lambda: some([[A]]))
    publish(draw.randrange(1, 20))
    if draw.random() < 0.7:
        lake.end(drained=draw.random() < 0.3)
        publish_cold = draw.randrange(4)
        for _ in range(publish_cold):
            some()
        lake.start()
    publish(draw.randrange(1, 10))
    lake.turn(4)
    lake.check()
    states = [Counter[Any](), *(joined(s) for s in lake.states.values())]
    assert [h["both"] for _, h in lake.store.history if h.get("both") not in (None, *states)] == []
    lake.close()
