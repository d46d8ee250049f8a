"""Views changed while all runs: equal to a start with them, others undisturbed, durable, and undone when cancelled."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from headrace.sidecar.config.config import load
from headrace.sidecar.control import applied_views, following
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.following import Cancelled
from headrace.sidecar.control.plan import ApplyError
from headrace.sidecar.control.staging import StagingDataflow
from headrace.sidecar.runtime.loop_tasks import LoopClosed
from headrace.sidecar.state.generation import StateError, last_generation
from headrace.sidecar.wiring.project import read_project
from headrace.views.errors import ViewError
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS, VISITS, Little, answers
from tests.sidecar.support.process import wait

BIGGEST = "  - {name: biggest, sinks: [s], sql: 'select v, max(id) as id from public.orders group by v'}\n"
REACHED = (
    "  - {{name: reached, sinks: [s], {}sql: 'with recursive t(a, b) as (select id, v from public.orders union select t.a, o.v "
    "from t join public.orders o on o.id = t.b) select a, b from t'}}\n"
)
PLUS_ONE = VIEWS.replace("count(*) as n", "count(*) + 1 as n")


def change(little: Little, views: str, *, drop: bool = False, busy: bool = True, tell: Any = lambda _: None) -> Any:
    """Write the folder anew and apply it, while the loop turns and, if `busy`, transactions go on."""
    (little.folder / "views" / "v.yaml").write_text(views)
    assert little.running is not None
    changing = ViewChanger(little.running)
    return meanwhile(little, lambda: changing.apply(drop=drop, tell=tell), busy=busy)


def check(little: Little, **others: Counter[Any]) -> None:
    """The sink holds what SQL answers, and every state that it ever held is one of the source's."""
    wanted = answers(little.state) | others
    assert {name: little.rows(name) for name in wanted} == wanted


def biggest(little: Little) -> Counter[Any]:
    found: dict[int, int] = {}
    for id_, v in +little.state[ORDERS]:
        found[v] = max(found.get(v, 0), id_)
    return Counter(dict.fromkeys(found.items(), 1))


def test_a_view_is_added_while_transactions_go_on(shop: Little) -> None:
    told: list[Any] = []
    done = change(shop, VIEWS + BIGGEST, tell=told.append)
    check(shop, biggest=biggest(shop))
    (fate,) = [f for f in done["views"] if f["action"] != "unchanged"]
    assert (fate["view"], fate["action"]) == ("biggest", "added")
    assert any(name.startswith("public.orders-") for name in fate["shares"])
    assert fate["adds"]
    assert [t["event"] for t in told][:2] == ["plan", "progress"]
    assert told[-1]["rows"] == told[-1]["of"] > 0


def test_a_change_that_the_end_of_the_run_meets_notes_nothing_after_it(shop: Little) -> None:
    """Found by the simulator: the next start took the views of a run that had ended in order for those of one that had died."""
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + BIGGEST)
    assert shop.running is not None
    changing, runtime = ViewChanger(shop.running), shop.running.runtime

    def ends(_: object) -> None:
        runtime.tasks.close()
        changing.end()

    with pytest.raises(LoopClosed, match="stopping"):
        meanwhile(shop, lambda: changing.apply(drop=False, tell=ends), busy=False)
    found = applied_views.last(last_generation(shop.running.settings.state))
    assert found is not None
    assert found[1], "the run ended in order"
    assert "biggest" not in {v.name for v in found[0]}


def test_views_that_stay_miss_no_transaction(shop: Little) -> None:
    change(shop, VIEWS + BIGGEST)
    assert shop.running is not None
    held = {name: shop.rows(name) for name in answers(shop.state)}
    for _, state in shop.store.history:
        seen = {name: state[name] for name in ("customers", "orders", "visits")}
        assert any(seen == {n: answers(s)[n] for n in seen} for s in shop.states.values())
    assert held == answers(shop.state)


def test_steps_that_wait_for_what_is_built_beside_are_made_up_for_at_once(
    shop: Little, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one they were ever more: each round of them left a longer queue than the last."""
    waited: list[int] = []
    step, hydrate = StagingDataflow._step, StagingDataflow.hydrate

    def counted(self: StagingDataflow) -> None:
        waited.append(len(self._waiting))
        step(self)

    def slow(self: StagingDataflow, *told: Any) -> None:
        hydrate(self, *told)
        wait(lambda: len(self._waiting) > 5 * following.ENOUGH, "the loop goes on meanwhile")

    monkeypatch.setattr(StagingDataflow, "hydrate", slow)
    monkeypatch.setattr(StagingDataflow, "_step", counted)
    change(shop, VIEWS + BIGGEST)
    check(shop, biggest=biggest(shop))
    assert len(waited) < waited[0] / 2


def test_a_changed_view_takes_the_place_of_the_old(shop: Little) -> None:
    done = change(shop, PLUS_ONE)
    assert {f["view"]: f["action"] for f in done["views"]}["by_city"] == "changed"
    plus = Counter({(city, n + 1): 1 for city, n in answers(shop.state)["by_city"]})
    assert shop.rows("by_city") == plus


def test_what_is_built_beside_may_have_other_names_of_columns_than_what_stands(shop: Little) -> None:
    """The greatest of each city is made of the pairs that another view has under names of its own."""
    pairs = "from public.orders o join public.customers c on c.id = o.v"
    change(shop, VIEWS + f"  - {{name: pairs, sinks: [s], sql: 'select c.v, o.id as n {pairs}'}}\n")
    greatest = f"  - {{name: pairs, sinks: [s], sql: 'select c.v, max(o.id) as n {pairs} group by c.v'}}\n"
    change(shop, VIEWS + greatest)
    customers, found = dict((+shop.state[CUSTOMERS]).keys()), dict[int, int]()
    for id_, of in +shop.state[ORDERS]:
        if of in customers:
            found[customers[of]] = max(found.get(customers[of], 0), id_)
    assert found
    check(shop, pairs=Counter(dict.fromkeys(found.items(), 1)))


def test_a_view_over_a_changed_one_is_rebuilt(shop: Little) -> None:
    over = "  - {name: cities, sinks: [s], sql: 'select sum(n) as n from by_city'}\n"
    change(shop, VIEWS + over)
    done = change(shop, PLUS_ONE + over)
    assert {f["view"]: f["action"] for f in done["views"] if f["action"] != "unchanged"} == {
        "by_city": "changed",
        "cities": "rebuilt",
    }
    total = sum(n for _, n in shop.rows("by_city"))
    assert shop.rows("cities") == Counter({(total or None,): 1})


@pytest.mark.parametrize("how", ["strategy: bootstrap", "strategy: history", "switch: 0.7"])
def test_another_way_to_follow_a_recursion_is_a_change(shop: Little, how: str) -> None:
    change(shop, VIEWS + REACHED.format(""))
    views = VIEWS + REACHED.format(f"recursion: {{{how}}}, ")
    done = change(shop, views)
    [fate] = [f for f in done["views"] if f["action"] != "unchanged"]
    assert (fate["view"], fate["action"], fate["why"]) == (
        "reached",
        "changed",
        "how its recursion is followed changed",
    )
    edges = set(+shop.state[ORDERS])
    found = set(edges)
    while more := {(a, d) for a, b in found for c, d in edges if b == c} - found:
        found |= more
    check(shop, reached=Counter(found))
    assert not change(shop, views)["changes"]


def test_dropping_needs_the_word_and_frees_what_nobody_else_holds(shop: Little) -> None:
    change(shop, VIEWS + BIGGEST)
    assert shop.running is not None
    flow = shop.running.runtime.parts.flow
    many = set(flow.facts())
    done = change(shop, VIEWS)
    assert {f["view"]: f["action"] for f in done["views"]}["biggest"] == "kept"
    check(shop, biggest=biggest(shop))
    done = change(shop, VIEWS, drop=True)
    assert {f["view"]: f["loses"] for f in done["views"]}["biggest"] == ("s",)
    assert "biggest" not in shop.store.rows
    assert set(flow.facts()) < many
    check(shop)


def test_the_arrangements_are_those_of_a_start_with_the_same_views(shop: Little) -> None:
    change(shop, PLUS_ONE + BIGGEST)
    change(shop, VIEWS + BIGGEST)
    assert shop.running is not None
    changed = set(shop.running.runtime.parts.flow.facts())
    shop.end()
    shop.start()
    assert shop.running is not None
    assert set(shop.running.runtime.parts.flow.facts()) == changed


def test_a_table_that_no_view_reads_any_more_is_let_go(shop: Little) -> None:
    without = VIEWS.replace('  - {name: visits, sinks: [s], sql: "select id, v from public.visits"}\n', "")
    done = change(shop, without, drop=True)
    assert done["tables_dropped"] == [VISITS]
    assert shop.running is not None
    assert VISITS not in shop.running.runtime.parts.tables
    meanwhile(shop, lambda: None)
    with pytest.raises(ApplyError, match="does not read so far"):
        change(shop, VIEWS)
    assert set(shop.store.rows) == {"customers", "orders", "by_city"}


def test_what_is_wrong_is_refused_and_changes_nothing(shop: Little) -> None:
    with pytest.raises(ViewError, match="missing"):
        change(shop, VIEWS + "  - {name: bad, sinks: [s], sql: select missing from public.orders}\n")
    with pytest.raises(ApplyError, match="sink that this sidecar does not have"):
        change(shop, VIEWS.replace("sinks: [s]", "sinks: [t]", 1))
    assert set(shop.store.rows) == set(answers(shop.state))
    check(shop)


def test_a_cancelled_change_has_changed_nothing(shop: Little, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.running is not None
    changing = ViewChanger(shop.running)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + BIGGEST)
    real = StagingDataflow.hydrate

    def interrupted(self: StagingDataflow, *arguments: Any) -> None:
        assert changing.state is not None
        assert changing.cancel()
        real(self, *arguments)

    monkeypatch.setattr(StagingDataflow, "hydrate", interrupted)
    with pytest.raises(Cancelled):
        meanwhile(shop, lambda: changing.apply(drop=False))
    assert "biggest" not in shop.store.rows
    assert not shop.running.runtime.feeds
    assert not changing.cancel()
    check(shop)


@pytest.mark.parametrize("ended", [False, True])
def test_views_in_force_outlive_a_death_but_not_an_orderly_end(shop: Little, *, ended: bool) -> None:
    change(shop, VIEWS + BIGGEST)
    assert shop.running is not None
    if ended:
        applied_views.note(shop.running.generation, [v.spec for v in shop.running.views], ended=True)
    shop.end()
    (shop.folder / "views" / "v.yaml").write_text(VIEWS)
    project, kept = applied_views.resumed(read_project(load(shop.folder / "headrace.yaml", {})))
    assert kept is not ended
    assert ("biggest" in {s.name for s in project.specs}) is not ended
    shop.start(project)
    shop.turn(3)
    check(shop, **({} if ended else {"biggest": biggest(shop)}))


def test_views_that_stay_in_force_keep_their_indexes_and_grants(shop: Little) -> None:
    assert shop.running is not None
    told = BIGGEST.replace("sinks: [s]", "sinks: [s], indexes: [[v], [id, v]], grants: [reader]")
    change(shop, VIEWS + told)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + BIGGEST)
    project, kept = applied_views.resumed(read_project(load(shop.folder / "headrace.yaml", {})))
    assert kept
    [found] = [s for s in project.specs if s.name == "biggest"]
    assert (found.indexes, found.grants) == ((("v",), ("id", "v")), ("reader",))


def test_a_kill_at_any_moment_of_a_change_is_one_of_the_two_sets(shop: Little, monkeypatch: pytest.MonkeyPatch) -> None:
    change(shop, VIEWS + BIGGEST)
    shop.end()  # the last checkpoint may be older than the change: the new view is computed anew
    project, kept = applied_views.resumed(read_project(load(shop.folder / "headrace.yaml", {})))
    assert not kept
    shop.start(project)
    shop.random(random.Random(8))
    shop.show_all()
    shop.turn(3)
    check(shop, biggest=biggest(shop))


def test_a_damaged_file_of_the_views_in_force_is_named(shop: Little) -> None:
    assert shop.running is not None
    generation = shop.running.generation
    applied_views.note(generation, [v.spec for v in shop.running.views])
    whole = generation.views.read_bytes()
    found = applied_views.last(last_generation(shop.folder / "state"))
    assert found is not None
    assert [s.name for s in found[0]] == [v.name for v in shop.running.views]
    for damaged in (whole[:-9], whole.replace(b"count(*)", b"count(v)"), b"", b"[]"):
        generation.views.write_bytes(damaged)
        with pytest.raises(StateError, match="damaged"):
            applied_views.last(last_generation(shop.folder / "state"))
