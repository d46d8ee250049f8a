"""Plans that come and go over live arrangements: nothing is left over, nobody is disturbed, and only the small side costs."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import engine
from headrace.engine.batch.batch import Batch
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import INSERT, UPSERT, Updates
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, TEXT, Column, Schema
from headrace.engine.trace import lookup
from headrace.engine.trace.spine import Spine
from tests.engine.dataflow.test_dataflow import COUNT, GROUPS, ITEMS, PAIRS, push, taken

ASKED = Schema.of([Column("id", INTEGER)], ["id"])
COUNTS = Schema((Column("title", TEXT), Column("n", BIGINT)))
INSTALLS = 1000
WARM = 400
AT_ONCE = 10
ROWS = 200
OURS = str(Path(engine.__file__).parent / "*")


def positive(column: int) -> Call:
    return Call(">(integer,integer)", (ColumnRef(column, INTEGER), Literal(0, INTEGER)), BOOLEAN)


def over_one() -> Call:
    return Call(">(bigint,bigint)", (ColumnRef(1, BIGINT), Literal(1, BIGINT)), BOOLEAN)


def look_up(asked: Collection, items: Collection, groups: Collection) -> Collection:
    return asked.join(items, [0], [0], columns=(0, 2, 3))


def grouped(asked: Collection, items: Collection, groups: Collection) -> Collection:
    return look_up(asked, items, groups).join(groups, [1], [0]).reduce([4], [COUNT], COUNTS)


def greatest(asked: Collection, items: Collection, groups: Collection) -> Collection:
    most = Aggregate("max", ColumnRef(0, INTEGER), INTEGER)
    mine = asked.join(items.filter(positive(1)), [0], [0])
    return mine.reduce([2], [most], Schema((Column("group", INTEGER), Column("id", INTEGER)))).check_key(
        [0], "greatest"
    )


def renamed(asked: Collection, items: Collection, groups: Collection) -> Collection:
    """A projection of a projection, of which nobody reads the inner one."""
    refs = [ColumnRef(2, TEXT), ColumnRef(0, INTEGER), ColumnRef(1, INTEGER)]
    inner = items.project(refs, Schema((Column("a", TEXT), Column("b", INTEGER), Column("c", INTEGER))))
    outer = inner.project(
        [ColumnRef(1, INTEGER), ColumnRef(0, TEXT)], Schema((Column("d", INTEGER), Column("e", TEXT)))
    )
    return asked.join(outer, [0], [0]).distinct()


Query = Callable[[Collection, Collection, Collection], Collection]
QUERIES: tuple[Query, ...] = (look_up, grouped, greatest, renamed)


class Live:
    """A dataflow whose tables change at every step, and its view."""

    def __init__(self) -> None:
        self.flow = Dataflow()
        self.items, self.groups = self.flow.table("items", ITEMS), self.flow.table("groups", GROUPS)
        joined = self.items.join(self.groups, [1], [0])
        self.outputs = joined.output("joined"), joined.reduce([4], [COUNT], COUNTS).output("counted")
        self.change(*[(i, i % 7, f"name {i}") for i in range(ROWS)])
        push(self.flow, "groups", GROUPS, *[(0, UPSERT, (i, f"title {i}")) for i in range(7)])
        self.step()

    def change(self, *rows: tuple[object, ...]) -> None:
        push(self.flow, "items", ITEMS, *[(self.flow.frontier, UPSERT, row) for row in rows])

    def step(self) -> None:
        self.flow.step(self.flow.frontier + 1)
        self.flow.advance_since(self.flow.frontier - 1)

    def install(self, number: int) -> tuple[Output, str]:
        """A query of its kind, with an argument table of its own."""
        name = f"asked {number}"
        asked = self.flow.table(name, ASKED)
        push(self.flow, name, ASKED, *[(self.flow.frontier, UPSERT, ((number + k) % ROWS,)) for k in range(3)])
        return QUERIES[number % len(QUERIES)](asked, self.items, self.groups).output(name), name

    def held(self) -> Counter[str]:
        """What there is of everything: objects of the engine by class, entries of the registry, and readers."""
        classes = (type(o) for o in gc.get_objects())
        kinds = Counter(c.__qualname__ for c in classes if str(c.__module__).startswith("headrace.engine."))
        assert kinds, "no object of the engine was found: its modules have another name"
        for changing in CHANGING:
            del kinds[changing]
        kinds["registry"] = len(self.flow.registry)
        kinds["nodes"] = len(self.flow._known)
        kinds["readers"] = sum(len(a.readers) for a in self.flow.registry)
        kinds["tables and outputs"] = len(self.flow._tables) + len(self.flow._outputs)
        return +kinds


CHANGING = {
    "Assembly",
    "Batch",
    "View",
    "Exported",
    "Picked",
    "Chosen",
    "Description",
    "Frontier",
    "Time",
    "Updates",
    "Delta",
    "Merger",
}
"""How many there are depends on where a live trace's merges stand."""


def test_a_filtered_or_projected_table_joined_by_its_key_is_not_arranged_once_more() -> None:
    live = Live()
    before = len(live.flow.registry)
    joined = live.items.join(live.groups.filter(positive(0)), [1], [0]).output("few")
    live.step()
    assert len(live.flow.registry) == before, "both sides are read where they lie"
    rows = joined.snapshot(live.flow.frontier - 1)[0].rows
    assert set(rows.column(1).to_pylist()) == set(range(1, 7))
    titles = live.groups.pick([1, 0], Schema((GROUPS.columns[1], GROUPS.columns[0])))
    titled = live.items.join(titles.filter(positive(1)), [1], [1]).output("titled")
    live.step()
    assert len(live.flow.registry) == before, "nor are columns that hold the key"
    assert titled.snapshot(live.flow.frontier - 1)[0].rows.num_rows == rows.num_rows
    live.items.filter(positive(0)).join(live.groups, [1], [0]).output("other")
    live.step()
    assert len(live.flow.registry) == before + 1, "by another column there is an arrangement of its own"


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Whatever goes must go at once, not when the collector of cycles comes by."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def come_and_go(live: Live, numbers: range, change: Callable[[range], None]) -> None:
    """Install, answer and drop a plan a number, several at once; `change`: what happens to the tables meanwhile."""
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        waiting = [live.install(number) for number in some]
        change(some)
        live.step()
        for number, (output, name) in zip(some, waiting, strict=True):
            rows, errors = output.take()
            assert len(rows)
            assert not len(errors)
            if number % 2:
                live.flow.drop_table(name)  # it goes with its last reader
            live.flow.drop(output)
            if not number % 2:
                live.flow.drop_table(name)


@pytest.mark.usefixtures("without_collector")
def test_a_thousand_plans_come_and_go_disturb_nobody_and_leave_nothing() -> None:
    live, alone = Live(), Live()
    assert [taken(o) for o in live.outputs] == [taken(o) for o in alone.outputs]
    seen: list[object] = []
    wanted: list[object] = []

    def change(numbers: range) -> None:
        rows = [(number % ROWS, number % 7, f"name {number}") for number in numbers]
        live.change(*rows)
        alone.change(*rows)
        alone.step()
        wanted.append([taken(o) for o in alone.outputs])
        seen.append([taken(o) for o in live.outputs])

    come_and_go(live, range(WARM), change)
    held = live.held()
    come_and_go(live, range(WARM, WARM + INSTALLS), change)
    seen.append([taken(o) for o in live.outputs])
    assert seen[1:] == wanted
    assert live.held() == held


@pytest.mark.long
@pytest.mark.usefixtures("without_collector")
def test_a_thousand_plans_come_and_go_and_keep_no_memory() -> None:
    live = Live()

    def nothing(_: range) -> None:
        pass

    def held() -> int:
        """Bytes that lines of the engine asked for, of Python and numpy, and that are still there."""
        gc.collect()  # empties Python's own lists of tuples kept for later
        traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=OURS)])
        return sum(trace.size for trace in traces.traces)

    tracemalloc.start()
    try:
        come_and_go(live, range(WARM), nothing)
        memory, arrow = held(), pa.total_allocated_bytes()
        come_and_go(live, range(WARM, WARM + INSTALLS), nothing)
        grown = held() - memory
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() == arrow
    # A dictionary that has become larger is some hundred bytes, once; the smallest object kept of each install is 16 bytes.
    assert grown < 8 * INSTALLS


def test_a_dropped_plan_is_refused_and_may_be_built_anew() -> None:
    live = Live()
    output, name = live.install(1)
    kept = output.collection
    live.step()
    content = kept.snapshot(live.flow.frontier - 1)[0].rows
    live.flow.drop(output)
    with pytest.raises(KeyError):
        live.flow.drop(output)
    for use in (lambda: kept.snapshot(0), lambda: kept.output("again"), kept.distinct, lambda: kept.changes(1, 2)):
        with pytest.raises(InvariantBroken, match="dropped"):
            use()
    known = len(live.flow._known)
    again = grouped(live.flow.table(name, ASKED), live.items, live.groups)
    assert again.snapshot(live.flow.frontier - 1)[0].rows.equals(content)
    live.flow.drop(again.output("again"))
    assert len(live.flow._known) == known
    live.flow.drop_table(name)
    for forgotten in (lambda: live.flow.drop_table(name), lambda: push(live.flow, name, ASKED, (9, UPSERT, (1,)))):
        with pytest.raises(KeyError):
            forgotten()
    assert not len(live.flow.table(name, ASKED).snapshot(live.flow.frontier - 1)[0]), (
        "a table of that name begins empty"
    )


def test_what_is_built_between_two_steps_survives_a_drop_and_what_a_step_found_unread_does_not() -> None:
    live = Live()
    output, _ = live.install(0)
    unread = live.items.filter(positive(1))
    live.step()
    fresh = live.items.filter(positive(0))
    live.flow.drop(output)
    assert len(fresh.snapshot(live.flow.frontier - 1)[0])
    with pytest.raises(InvariantBroken, match="dropped"):
        unread.output("late")
    kept = fresh.output("in time")
    live.change((1, 2, "new"))
    live.step()
    assert len(kept.take()[0])


def stored(live: Live, rows: int) -> None:
    """A large table of pairs."""
    live.flow.table("pairs", PAIRS)
    push(live.flow, "pairs", PAIRS, *[(live.flow.frontier, INSERT, (i, i % 500)) for i in range(rows)])
    live.step()


@contextmanager
def counting(patch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many updates were read of traces: whole contents, and what lookups found."""
    read: list[int] = []
    content, gather = lookup.content, Spine.gather

    def whole(layout: Layout, batches: Sequence[Batch], as_of: int) -> Updates:
        read.append(sum(len(b) for b in batches))
        return content(layout, batches, as_of)

    def some(
        spine: Spine, keys: Keys, since: int | None = None, until: int | None = None, most: int = lookup.LATEST
    ) -> lookup.Matches:
        found = gather(spine, keys, since, until, most)
        read.append(len(found))
        return found

    with patch.context() as inside:
        inside.setattr("headrace.engine.trace.spine.content", whole)
        inside.setattr(Spine, "gather", some)
        yield read


def test_a_join_over_a_large_live_arrangement_costs_its_small_side(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live()
    stored(live, 20_000)
    pairs, asked = live.flow.table("pairs", PAIRS), live.flow.table("asked", PAIRS)
    some = pairs.filter(over_one())
    arranging = [asked.join(side, [1], [1]).output("arranges by b") for side in (pairs, some)]
    push(live.flow, "asked", PAIRS, *[(live.flow.frontier, INSERT, (k, k)) for k in range(5)])
    live.step()
    with counting(monkeypatch) as read:
        for one, two, found in ((asked, pairs, 5), (pairs, asked, 5), (asked, some, 3), (asked.distinct(), pairs, 5)):
            as_of = live.flow.frontier - 1
            joined = one.join(two, [1], [1], columns=(0, 1, 2))
            assert len(joined.snapshot(as_of)[0]) == 40 * found
            counted = joined.reduce([1], [COUNT], Schema((Column("b", BIGINT), Column("n", BIGINT))))
            assert len(counted.snapshot(as_of)[0]) == found
            live.step()
    assert sum(read) < 5_000
    assert len(arranging) == 2
