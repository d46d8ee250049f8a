"""A recursive view that takes more than a step may, in a running sidecar: the others stay fresh, and it comes back by itself.

The file is long because all of it plays one running sidecar, whatever befalls the view.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.dataflow.recursive import RecursiveNode
from headrace.engine.recursion import derive
from headrace.sidecar.cli.status import problems
from headrace.sidecar.control import rescale
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.cutover import ApplyError
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.control.rescale import Rescaling
from headrace.sidecar.control.staging import StagingDataflow
from headrace.sidecar.process.freshness import Freshness
from headrace.sidecar.process.state_changes import StateChanges
from headrace.sidecar.process.status_board import status
from headrace.sidecar.runtime import late_recursions
from tests.seeds import seeds
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS, VISITS, Little, State, answers

ROWS = {CUSTOMERS: [(i, i % 3) for i in range(1, 6)], ORDERS: [(1, 1), (2, 1)], VISITS: [(1, 1), (2, 2)]}
CLOSURE = (
    "with recursive t(a, b) as (select id, v from public.orders "
    "union select t.a, o.v from t join public.orders o on o.id = t.b)"
)
MORE = f"""\
  - {{name: pairs, sinks: [s], sql: "{CLOSURE} select a, b from t"}}
  - {{name: from_each, sinks: [s], sql: "select a, count(*) as n from pairs group by a"}}
"""
Pairs = Counter[tuple[int, int]]


class Deep(Little):
    """As Little, with a recursive view and one that reads it. `step_work`: what a recursion may do in a step; `strategy`: how it
    follows changes."""

    step_work = 150
    strategy = "auto"

    def configure(self) -> dict[str, Any]:
        found = super().configure()
        return {**found, "engine": {**found["engine"], "step_work": self.step_work}}

    def followed(self, views: str) -> str:
        """Views, with the strategy of those that recurse."""
        return views.replace("name: pairs,", f"name: pairs, recursion: {{strategy: {self.strategy}}},")

    @property
    def caught_up(self) -> bool:
        """Whether all that the log had before a restart is in."""
        assert self.running is not None
        return self.running.runtime.parts.reclock.replaying is None

    def late(self) -> dict[str, Any]:
        assert self.running is not None
        return {v["name"]: v for v in status(self.running)["views"] if v["late"]}


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(Deep, "strategy", request.param)


def strategies(test: Callable[..., None]) -> Callable[..., None]:
    """The test, with recursions by each strategy."""
    each = pytest.mark.parametrize("strategy", ["auto", "update", "history"], indirect=True)
    marked: Callable[..., None] = each(pytest.mark.usefixtures("strategy")(test))
    return marked


@contextmanager
def deep(folder: Path, patch: pytest.MonkeyPatch, portion: int, *, every_turn: bool = True) -> Iterator[Deep]:
    patch.setattr(late_recursions, "PORTION", portion)
    shop = Deep(folder, patch, every_turn=every_turn)
    (folder / "views" / "v.yaml").write_text(VIEWS + shop.followed(MORE))
    with shop.begun(ROWS):
        yield shop


def closure(state: State) -> Pairs:
    edges = {row for row, times in state[ORDERS].items() if times > 0}
    found = set(edges)
    while more := {(a, d) for a, b in found for c, d in edges if b == c} - found:
        found |= more
    return Counter(dict.fromkeys(found, 1))


def from_each(pairs: Pairs) -> Pairs:
    return Counter(dict.fromkeys(Counter(a for a, _ in pairs).items(), 1))


def check(shop: Deep) -> None:
    """Every write has the answers of one commit; of late views that, or what the write before had."""
    before: dict[str, Counter[Any]] = {}
    for frontier, rows in shop.store.history:
        state = shop.states[frontier.sources["shop"].place.order]
        for view, answer in answers(state).items():
            assert rows[view] == answer, view
        pairs = closure(state)
        for view, answer in {"pairs": pairs, "from_each": from_each(pairs)}.items():
            assert rows.get(view, Counter()) in (answer, before.get(view, Counter())), view
        before = rows


@strategies
@pytest.mark.parametrize("seed", seeds(8))
def test_others_go_on_and_it_comes_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    lates = 0
    monkeypatch.setattr(Deep, "step_work", draw.choice([1, 60]))
    with deep(tmp_path, monkeypatch, draw.choice([20, 100, 1000]), every_turn=draw.random() < 0.5) as shop:
        for _ in range(40):
            for _ in range(draw.choice([0, 0, 1, 1, 3])):
                shop.random(draw)
            shop.show_all()
            shop.turn()
            lates += bool(shop.late())
            shop.turn()
            check(shop)
            late = shop.late()
            assert late.keys() in (set(), {"pairs", "from_each"})
            if shop.caught_up:
                assert shop.in_error() == set(late)
                assert {v: shop.rows(v) for v in answers(shop.state)} == answers(shop.state), "the others are not late"
            if draw.random() < 0.2:
                shop.end(drained=draw.random() < 0.3)
                shop.start()
        for _ in range(400):
            shop.turn()
        assert not shop.late()
        assert not shop.in_error()
        assert shop.rows("pairs") == closure(shop.state)
        assert shop.rows("from_each") == from_each(closure(shop.state))
        check(shop)
    assert lates


@strategies
def test_a_late_view_is_told_by_status_and_metrics_and_keeps_its_last_good_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derive, "_ROUNDS", 1)
    with deep(tmp_path, monkeypatch, 20) as shop:
        shop.turn(200)
        kept = shop.rows("pairs").copy()
        assert kept == closure(shop.state)
        shop.transact(*((ORDERS, "c", (k, k + 1)) for k in range(10, 30)))
        shop.show_all()
        while not shop.late():
            shop.turn()
        late = shop.late()["pairs"]
        assert (late["errors"], late["error"]) == (0, None)
        assert late["late"]["since_epoch"] > 0
        shop.turn(4)  # an Update is dropped, and Bootstrap has begun
        further = shop.late()["pairs"]["late"]
        assert further["since_epoch"] == late["late"]["since_epoch"]
        assert further["work"] > late["late"]["work"]
        assert (further["round"], further["rows"]) > (0, 0)
        assert shop.store.errors["pairs"][0].startswith("late: ")
        assert shop.running is not None
        freshness = Freshness(shop.running)
        changes = StateChanges(shop.running, freshness)
        freshness.look()
        events = [(e["event"], e.get("view")) for e in changes.look()]
        assert {("view_late", "pairs"), ("view_late", "from_each")} <= set(events)
        assert not [e for e in events if e[0] == "view_error"]
        metrics = shop.running.metrics.render().decode()
        for gauge, value in {"late": 1, "late_round": further["round"], "late_rows": further["rows"], "up": 1}.items():
            assert f'headrace_view_{gauge}{{view="pairs"}} {float(value)}' in metrics
        shown = {**status(shop.running), "views": [{**v, "state": "late"} for v in shop.late().values()]}
        [(_, who, what), *_] = problems(shown)
        assert who == "view pairs"
        assert f"since epoch {further['since_epoch']}, now in round {further['round']}" in str(what)
        assert shop.rows("pairs") == kept
        assert shop.rows("orders") == +shop.state[ORDERS]
        shop.turn(400)
        assert not shop.late()
        assert not shop.in_error()
        assert shop.rows("pairs") == closure(shop.state)
        assert len(shop.rows("pairs")) > len(kept) + 200


@strategies
def test_another_count_of_workers_waits_until_a_recursion_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runaway(tmp_path, monkeypatch) as (shop, go_on):
        assert shop.running is not None
        rescaling, seen = Rescaling(shop.running, ViewChanger(shop.running)), Counter[bool]()
        turn = shop.turn

        def turned(times: int = 1) -> None:
            seen[bool(shop.late())] += 1
            if seen[True] == 3:
                go_on()
            turn(times)

        monkeypatch.setattr(shop, "turn", turned)
        assert meanwhile(shop, lambda: rescaling.rescale(2), busy=False)["workers"] == 2
        assert seen[True] >= 3, "it was late when it was asked"
        shop.transact(*((ORDERS, "c", (k, k + 1)) for k in range(40, 60)))
        shop.show_all()
        turn()
        assert shop.late().keys() == {"pairs", "from_each"}, "in two workers too"
        turn(200)
        assert not shop.late()
        assert not shop.in_error()
        assert shop.rows("pairs") == closure(shop.state)


def test_no_step_is_too_much_unless_the_configuration_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deep, "step_work", 0)
    with deep(tmp_path, monkeypatch, 20) as shop:
        shop.transact(*((ORDERS, "c", (k, k + 1)) for k in range(10, 30)))
        shop.show_all()
        shop.turn()
        assert not shop.late()
        assert shop.rows("pairs") == closure(shop.state)


def paused(patch: pytest.MonkeyPatch) -> None:
    """Nothing that is late goes on, as if it ran away."""
    patch.setattr(late_recursions, "evaluate", lambda *_, **__: late_recursions.Late(goes_on=False, back=False))


def sums(pairs: Pairs) -> Pairs:
    found: Pairs = Counter()
    for a, b in pairs:
        found[a] += b
    return Counter(dict.fromkeys(found.items(), 1))


def shifted(pairs: Pairs) -> Pairs:
    return Counter({(a, b + 1): n for (a, b), n in pairs.items()})


SUMS = '  - {name: sums, sinks: [s], sql: "select a, sum(b) as n from pairs group by a"}\n'
PAIRS, FROM_EACH = MORE.splitlines(keepends=True)
CHOICES: dict[str, tuple[str, dict[str, Callable[[Pairs], Pairs]]]] = {
    "as ever": (MORE, {"pairs": Counter, "from_each": from_each}),
    "none": ("", {}),
    "pairs alone": (PAIRS, {"pairs": Counter}),
    "other pairs": (
        PAIRS.replace("select a, b from t", "select a, b + 1 as b from t") + FROM_EACH,
        {"pairs": shifted, "from_each": from_each},
    ),
    "another recursion": (
        PAIRS.replace("union select", "union select id, v from public.orders where id < 0 union select") + FROM_EACH,
        {"pairs": Counter, "from_each": from_each},
    ),
    "sums too": (MORE + SUMS, {"pairs": Counter, "from_each": from_each, "sums": sums}),
    "sums of other pairs": (
        PAIRS.replace("select a, b from t", "select a, b + 1 as b from t") + SUMS,
        {"pairs": shifted, "sums": lambda pairs: sums(shifted(pairs))},
    ),
}
"""Views, and what each is of the pairs."""


@contextmanager
def runaway(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[tuple[Deep, Callable[[], None]]]:
    """A sidecar whose recursion is late, and does not come back before it is told to."""
    with deep(folder, patch, 20) as shop:
        shop.turn(200)
        shop.transact(*((ORDERS, "c", (k, k + 1)) for k in range(10, 30)))
        shop.show_all()
        with patch.context() as inner:
            paused(inner)
            shop.turn()
            assert shop.late().keys() == {"pairs", "from_each"}
            yield shop, inner.undo


def changed(shop: Deep, choice: str, *, busy: bool = False) -> Any:
    assert shop.running is not None
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + shop.followed(CHOICES[choice][0]))
    changing = ViewChanger(shop.running)
    return meanwhile(shop, lambda: changing.apply(drop=True), busy=busy)


def settled(shop: Deep, choice: str) -> None:
    """All that a choice puts in force has come back, and is right."""
    shop.turn(400)
    assert not shop.late()
    assert not shop.in_error()
    wanted = {view: answer(closure(shop.state)) for view, answer in CHOICES[choice][1].items()}
    assert {view: shop.rows(view) for view in wanted} == wanted
    assert shop.store.rows.keys() - answers(shop.state).keys() == wanted.keys()


@strategies
def test_a_view_that_runs_away_is_dropped_while_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with runaway(tmp_path, monkeypatch) as (shop, go_on):
        assert changed(shop, "none", busy=True)["event"] == "applied"
        assert not shop.late()
        assert shop.running is not None
        parts = shop.running.runtime.parts
        assert not parts.flow.is_late
        kept = [name for name in parts.flow.facts() if name.startswith(("recursion", "loop"))]
        assert not kept, "it lets go of what it held"
        assert not {"pairs", "from_each"} & shop.store.rows.keys()
        shop.random(random.Random(1))
        shop.show_all()
        shop.turn(2)
        assert {v: shop.rows(v) for v in answers(shop.state)} == answers(shop.state)
        shop.end(drained=False)
        shop.start()
        settled(shop, "none")
        go_on()
        changed(shop, "as ever")
        settled(shop, "as ever")


@strategies
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_view_that_runs_away_is_replaced_while_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str, restarted: bool
) -> None:
    """Whatever reads the same recursion is late with it, and comes back with it."""
    with runaway(tmp_path, monkeypatch) as (shop, go_on):
        kept = shop.rows("pairs").copy()
        changed(shop, choice, busy=choice != "another recursion")  # whose own rows would grow until it is late, too
        shop.turn(2)
        away = {"none", "another recursion"}
        assert shop.late().keys() == (set() if choice in away else CHOICES[choice][1].keys())
        if choice in ("as ever", "pairs alone", "sums too"):
            assert shop.rows("pairs") == kept
        if restarted:
            shop.end(drained=False)
            shop.start()
            shop.turn(2)
        assert {v: shop.rows(v) for v in answers(shop.state)} == answers(shop.state), "the others are not late"
        go_on()
        settled(shop, choice)


@strategies
@pytest.mark.parametrize("seed", seeds(12))
def test_views_change_while_recursions_are_late_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(Deep, "step_work", draw.choice([1, 60]))
    choice, done = "as ever", Counter[str]()
    with deep(tmp_path, monkeypatch, draw.choice([20, 100, 1000]), every_turn=draw.random() < 0.5) as shop:
        for _ in range(30):
            for _ in range(draw.choice([0, 0, 1, 1, 3])):
                shop.random(draw)
            shop.show_all()
            shop.turn(draw.choice([1, 1, 2]))
            if draw.random() < 0.4 and shop.caught_up:
                late, wanted = bool(shop.late()), draw.choice(list(CHOICES))
                try:
                    changed(shop, wanted, busy=draw.random() < 0.7)
                    choice = wanted
                    done["late" if late else "in time"] += 1
                except ApplyError as error:
                    if "became late, or came back" not in str(error):
                        raise
                    done["refused"] += 1
                    (tmp_path / "views" / "v.yaml").write_text(VIEWS + shop.followed(CHOICES[choice][0]))
            shop.turn(3)  # one in which a recursion comes back reads nothing
            if shop.caught_up:
                assert shop.in_error() >= shop.late().keys()
                assert {v: shop.rows(v) for v in answers(shop.state)} == answers(shop.state), "the others are not late"
            if draw.random() < 0.1:
                shop.end(drained=draw.random() < 0.3)
                shop.start()
        settled(shop, choice)
    assert done["late"] + done["in time"]


def test_what_is_computed_beside_a_recursion_that_becomes_late_or_comes_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside, it is as it was: its new readers would have rows that the running one gives later again, or lack some."""
    with runaway(tmp_path, monkeypatch) as (shop, go_on):
        assert shop.running is not None
        changing = ViewChanger(shop.running)
        monkeypatch.setattr(rescale, "PATIENCE", 0.0)
        with pytest.raises(ControlError, match="a recursion is late"):
            meanwhile(shop, lambda: Rescaling(shop.running, changing).rescale(2), busy=False)
        hydrate = StagingDataflow.hydrate
        with monkeypatch.context() as during:

            def turned(self: StagingDataflow, *of: Any) -> None:
                hydrate(self, *of)
                flow = shop.running.runtime.parts.flow
                for node in flow._known.values():
                    if isinstance(node, RecursiveNode):
                        node._turned = flow.frontier + 1

            during.setattr(StagingDataflow, "hydrate", turned)
            with pytest.raises(ApplyError, match=r"came back.*sums"):
                changed(shop, "sums too")
        assert shop.late().keys() == {"pairs", "from_each"}
        go_on()
        settled(shop, "as ever")
