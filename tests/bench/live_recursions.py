"""Recursive views among others, in one dataflow: a tree in which rows move, a recursion that does not end, and installs.

Always: a step is measured from the change in memory to the output of every view, by the clock where others wait for it, and by
processor time where it is compared. Called by bench_recursion.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.sidecar.runtime.late_recursions import PORTION
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.limits import Limits
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import programs_views
from tests.bench.peers.feeding import words_of
from tests.bench.peers.laps import Answer
from tests.bench.peers.programs import Content

NODES = Schema.of([Column("id", BIGINT, nullable=False), Column("parent", BIGINT, nullable=False)], ["id"])
STARTS = Schema.of([Column("a", BIGINT, nullable=False)], ["a"])
CATALOG = Catalog({"public.nodes": NODES, "public.starts": STARTS})
TREE = (
    "with recursive t(id, top, depth) as (select id, id, 0::bigint from nodes where parent = -1 union all "
    "select n.id, case when t.depth = 0 then n.id else t.top end, t.depth + 1 from t join nodes n on n.parent = t.id) "
    "select id, top, depth from t"
)
NINE = tuple(
    [f"select parent % {k} as g, count(*) as n, sum(id) as s from nodes group by 1" for k in (2, 3, 5, 7, 11)]
    + [
        "select n.id, p.parent from nodes n join nodes p on p.id = n.parent",
        "select parent, max(id) as m from nodes group by parent",
        "select id from nodes where parent < 100",
        "select id, parent from nodes order by id desc limit 10",
    ]
)
ANCESTORS = (
    "with recursive t(a, b) as (select n.id, n.parent from nodes n cross join starts s union "
    "select t.a, n.parent from t join nodes n on n.id = t.b) select a, b from t"
)
ENDLESS = "with recursive n(a) as (select a from starts union all select a + 1 from n) select a from n"
QUESTION = """
.input node = public.nodes
above(x, p) :- node(x, p).
above(x, q) :- above(x, p), node(p, q).
.query above(+x, -p) from public.starts(a)
"""


class Live:
    """A dataflow of nodes and starts, and the outputs of its views."""

    def __init__(self) -> None:
        self.flow = Dataflow()
        self.flow.table("public.nodes", NODES)
        self.flow.table("public.starts", STARTS)
        self.outputs: list[Output] = []
        self.collections: dict[str, Collection] = {}

    def view(self, name: str, sql: str, limits: Limits | None = None) -> Output:
        """One more."""
        [view] = compile_views(
            [ViewSpec(name, sql, rounds=(limits or Limits()).rounds, rows=(limits or Limits()).rows)], CATALOG
        )
        self.outputs.append(render(view, self.flow, {}).output(name))
        return self.outputs[-1]

    def question(self, text: str) -> Output:
        """The views of a program with one question."""
        rendered: dict[str, Collection] = {}
        for view in compile_views(programs_views(ViewSpec("q", text)), CATALOG):
            rendered[view.name] = render(view, self.flow, rendered)
            output = rendered[view.name].output(view.name)
        self.outputs.append(output)
        return output

    def put(self, table: str, *lanes: np.ndarray) -> None:
        """Rows of a table, new or in the place of those that have their key."""
        schema = {"nodes": NODES, "starts": STARTS}[table]
        rows = pa.RecordBatch.from_arrays([pa.array(lane) for lane in lanes], schema=schema.arrow)
        count = rows.num_rows
        upserts = Upserts(rows, np.full(count, self.flow.frontier), np.full(count, UPSERT, np.uint8))
        self.flow.push(f"public.{table}", upserts)

    def step(self) -> None:
        """One epoch through."""
        self.flow.step(self.flow.frontier + 1)
        self.flow.advance_since(self.flow.frontier - 1)


class Moved(NamedTuple):
    """Of rows of a tree that move: seconds of each step by the clock and by the processor, the nodes as they are at last, and the
    answer's checksum."""

    wall: list[float]
    cpu: list[float]
    nodes: np.ndarray
    checksum: str


def moved(nodes: int, moves: int) -> Moved:
    """A binary tree, of which one leaf after the other gets another parent."""
    live, content = Live(), Content()
    output = live.view("tree", TREE)
    parents = (np.arange(nodes) - 1) // 2
    parents[0] = -1
    random = np.random.default_rng(53)
    answer = Answer()

    def take() -> None:
        rows, errors = output.take()
        assert not len(errors), errors.rows.to_pydict()
        content.add(0, words_of(rows.rows), rows.diffs)

    live.put("nodes", np.arange(nodes), parents)
    live.step()
    take()
    for _ in range(moves):
        some = int(random.integers(nodes // 2, nodes))
        # Among nodes of smaller numbers, so that the tree stays one.
        parents[some] = int(random.integers(1, nodes // 2))
        live.put("nodes", np.array([some]), parents[[some]])
        answer.lap(live.step)
        take()
    content.close()
    return Moved(answer.wall, answer.cpu, np.stack([np.arange(nodes), parents], 1), f"{content.chain:016x}")


class Beside(NamedTuple):
    """Of steps of nine views seconds by the clock; of a recursion beside them in how many of these it was late."""

    wall: list[float]
    late: int


def steps_beside(
    nodes: int, steps: int, recursion: str = "", limits: Limits | None = None, step_work: int = 0
) -> Beside:
    """Steps of nine views, beside a recursion that begins in one of them, if any.

    `step_work`: after so much work it is late; then each step waits for a portion of it first, as one does that comes when
    that has just begun. It is late no more at the end.
    """
    live = Live()
    live.flow.late.step_work = step_work
    for number, sql in enumerate(NINE):
        live.view(f"v{number}", sql)
    if recursion:
        live.view("recursion", recursion, limits)

    def portion_and_step() -> None:
        live.flow.late.go_on(PORTION)
        if live.flow.late.ended:
            live.step()  # it comes back at an epoch of its own
        live.step()

    late = 0
    parents = (np.arange(nodes) - 1) // 2
    live.put("nodes", np.arange(nodes), parents)
    live.step()
    random = np.random.default_rng(59)
    answer = Answer()
    for step in range(steps):
        some = random.integers(1, nodes, 5)
        live.put("nodes", np.unique(some), random.integers(0, nodes, len(np.unique(some))))
        if step == steps // 4:
            live.put("starts", np.array([1]))
        answer.lap(portion_and_step)
        late += bool(live.flow.late)
        for output in live.outputs:
            output.take()
    while live.flow.late:
        live.flow.late.go_on(PORTION)
        if live.flow.late.ended:
            live.step()
    return Beside(answer.wall, late)


def installs(nodes: int, times: int) -> dict[str, list[float]]:
    """Seconds of a recursive view, and of a question, from its text to the first row, less what deriving its rows takes.

    What deriving takes is that of the same view once more, whose plan is known, over the same tables.
    """
    live = Live()
    live.view("v", "select id, parent from nodes")
    parents = (np.arange(nodes) - 1) // 2
    parents[0] = -1
    live.put("nodes", np.arange(nodes), parents)
    live.put("starts", np.array([nodes - 1]))
    live.step()
    gc.collect()
    gc.freeze()
    kinds: dict[str, Callable[[], Output]] = {
        "view": lambda: live.view("w", TREE),
        "question": lambda: live.question(QUESTION),
    }
    found: dict[str, list[float]] = {}
    for kind, install in kinds.items():
        for _ in range(times):
            began = time.process_time()
            output = install()
            planned = time.process_time()
            live.flow.hydrate()
            hydrated = time.process_time()
            output.snapshot(live.flow.frontier - 1)
            answered = time.process_time()
            found.setdefault(f"{kind}, plan and build", []).append(planned - began)
            found.setdefault(f"{kind}, its rows", []).append(hydrated - planned)
            found.setdefault(f"{kind}, first answer", []).append(answered - hydrated)
            live.outputs.remove(output)
            live.flow.drop(output)
    gc.unfreeze()
    return found
