"""Our side of recursive programs: views in Datalog or WITH RECURSIVE over tables, as whoever declares them has them.

Always: rules are those of the peers' programs, join for join. What a session answers with is one checksum of what its views
hold after each epoch, so that whoever begins anew is compared too; shared/src/content.rs has the same in Rust. Called by
`sessions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.engine.batch.updates import DELETE, UPSERT, Int64s, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.recursive import RecursiveNode
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import programs_views
from headrace.views.view_models import RecursionModel
from tests.bench.peers.columns import Lane, hashes, mixed
from tests.bench.peers.feeding import Session, Slice, Source, words_of
from tests.bench.peers.laps import Answer

COLUMNS = ("key", "value", "third")


@dataclass(frozen=True)
class Program:
    """`relations`: of each that is given how many columns it has; `outputs`: those that are compared, in the peers' order."""

    text: str
    relations: Mapping[str, int]
    outputs: Sequence[str]
    is_sql: bool = False


EDGES = {"edge": 2}
PROGRAMS = {
    "closure": Program(
        "with recursive path(a, b) as (select key, value from edge union "
        "select p.a, e.value from path p join edge e on e.key = p.b) select a, b from path",
        EDGES,
        ("v",),
        is_sql=True,
    ),
    "generation": Program(
        "with recursive same(a, b) as (select x.value, y.value from edge x join edge y on x.key = y.key and x.value <> y.value "
        "union select x.value, y.value from same s join edge x on x.key = s.a join edge y on y.key = s.b) select a, b from same",
        EDGES,
        ("v",),
        is_sql=True,
    ),
    "reach": Program(
        "with recursive r(a) as (select key from root union select e.value from r join edge e on e.key = r.a) select a from r",
        {"root": 1, "edge": 2},
        ("v",),
        is_sql=True,
    ),
    "points_to": Program(
        """
        .input new = public.new
        .input assign = public.assign
        .input load = public.load
        .input store = public.store
        points(v, o) :- new(v, o).
        points(v, o) :- assign(v, w), points(w, o).
        points(v, o) :- load(v, b, f), points(b, p), holds(p, f, o).
        holds(p, f, o) :- store(b, f, w), points(b, p), points(w, o).
        .output points, holds
        """,
        {"new": 2, "assign": 2, "load": 3, "store": 3},
        ("points", "holds"),
    ),
    "ontology": Program(
        """
        .input includes = public.includes
        .input both = public.both
        .input filled = public.filled
        .input means = public.means
        .input chain = public.chain
        is(x, x) :- includes(x, _).
        is(x, x) :- includes(_, x).
        is(x, z) :- is(x, y), includes(y, z).
        is(x, c) :- is(x, a), is(x, b), both(a, b, c).
        role(x, r, y) :- is(x, a), filled(a, r, y).
        is(x, c) :- role(x, r, y), is(y, a), means(r, a, c).
        role(x, t, z) :- role(x, r, y), role(y, s, z), chain(r, s, t).
        .output is, role
        """,
        {"includes": 2, "both": 3, "filled": 3, "means": 3, "chain": 3},
        ("is", "role"),
    ),
    "editor": Program(
        """
        .input typed = public.typed
        .input removed = public.removed
        has_child(p) :- typed(_, p).
        not_first(p, c) :- typed(c, p), typed(o, p), o > c.
        first(p, c) :- typed(c, p), !not_first(p, c).
        later(a, b) :- typed(a, p), typed(b, p), a > b.
        between(a, c) :- later(a, b), later(b, c).
        sibling(a, b) :- later(a, b), !between(a, b).
        has_sibling(a) :- sibling(a, _).
        up(a, b) :- sibling(a, b).
        up(a, b) :- typed(a, p), up(p, b), !has_sibling(a).
        next(a, b) :- first(a, b).
        next(a, b) :- up(a, b), !has_child(a).
        skip(a, b) :- next(a, b).
        skip(a, c) :- skip(a, b), removed(b), next(b, c).
        text(a, b) :- skip(a, b), !removed(a), !removed(b).
        .output text
        """,
        {"typed": 2, "removed": 1},
        ("text",),
    ),
    "closure_from": Program(
        """
        .input edge = public.edge
        path(x, y) :- edge(x, y).
        path(x, z) :- path(x, y), edge(y, z).
        .query path(+a, -b) from public.asked(key)
        """,
        {"asked": 1, "edge": 2},
        ("path",),
    ),
    "closure_to": Program(
        """
        .input edge = public.edge
        path(x, y) :- edge(x, y).
        path(x, z) :- edge(x, y), path(y, z).
        .query path(-a, +b) from public.asked(key)
        """,
        {"asked": 1, "edge": 2},
        ("path",),
    ),
    "generation_of": Program(
        """
        .input edge = public.edge
        same(x, y) :- edge(p, x), edge(p, y), x != y.
        same(x, y) :- edge(p, x), same(p, q), edge(q, y).
        .query same(+a, -b) from public.asked(key)
        """,
        {"asked": 1, "edge": 2},
        ("same",),
    ),
}
STRATEGIES = ("auto", "update", "bootstrap", "history")


@dataclass
class Content:
    """`sum`: of diff × hash(relation, row) over all that the relations hold; `chain`: of the sums after all epochs so far."""

    sum: int = 0
    chain: int = 0

    def add(self, relation: int, words: Sequence[Lane], diffs: Int64s) -> None:
        """Rows of the relation of that number more, and less."""
        if len(diffs):
            found = hashes([np.full(len(diffs), relation), *words]) * diffs.view(np.uint64)
            self.sum = (self.sum + int(found.sum(dtype=np.uint64))) % 2**64

    def close(self) -> None:
        """An epoch is over."""
        self.chain = int(mixed(np.array([(self.chain + self.sum) % 2**64], np.uint64))[0])


@dataclass
class Held:
    """Tables, and outputs of views over them, in a dataflow of their own."""

    flow: Dataflow
    schemas: Mapping[str, Schema]
    outputs: list[Output] = field(default_factory=list)


def declared(program: Program, strategy: str) -> Held:
    """A program's views, each kept by a strategy."""
    schemas = {
        name: Schema.of([Column(c, BIGINT, nullable=False) for c in COLUMNS[:columns]], COLUMNS[:columns])
        for name, columns in program.relations.items()
    }
    held = Held(Dataflow(), schemas)
    for name, schema in schemas.items():
        held.flow.table(f"public.{name}", schema)
    recursion = RecursionModel(strategy=strategy)  # type: ignore[arg-type]
    spec = ViewSpec("v", program.text, recursion=recursion, rounds=1 << 20)
    views = compile_views(
        [spec] if program.is_sql else programs_views(spec), Catalog({f"public.{n}": s for n, s in schemas.items()})
    )
    rendered: dict[str, Collection] = {}
    by_relation = {}
    for view in views:
        rendered[view.name] = render(view, held.flow, rendered)
        by_relation[view.spec.relation.removeprefix("query ") or view.name] = rendered[view.name].output(view.name)
    held.outputs += [by_relation[name] for name in program.outputs]
    return held


class Rules(Session):
    """A program, and what it holds after each epoch."""

    def __init__(self, held: Held) -> None:
        self.flow, self._schemas, self._outputs = held.flow, held.schemas, held.outputs
        self._content = Content()
        nodes = reachable(output.collection.node for output in held.outputs)
        self._states = [node.state for node in nodes if isinstance(node, RecursiveNode)]

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the relations, each of which has its columns at `prefix`-relation."""
        upper = self.flow.frontier
        sources = {name: Source(f"{prefix}-{name}", schema, upper) for name, schema in self._schemas.items()}
        answer = Answer(rows=sum(source.size for source in sources.values()))
        while any(source.waits for source in sources.values()):
            upper += epochs
            cut = {name: source.before(upper) for name, source in sources.items()}
            before = self._done()
            answer.lap(lambda cut=cut, upper=upper: self._step(cut, upper))  # type: ignore[misc]
            answer.ways.append(_way(before, self._done()))
            for number, output in enumerate(self._outputs):
                rows, errors = output.take()
                assert not len(errors), errors.rows.to_pydict()
                self._content.add(number, words_of(rows.rows), rows.diffs)
                answer.out += len(rows)
            self._content.close()
        answer.checksum = self._content.chain
        return answer

    def _step(self, cut: Mapping[str, Slice], upper: int) -> None:
        for name, one in cut.items():
            if len(one):
                kinds = np.where(one.diffs > 0, UPSERT, DELETE).astype(np.uint8)
                self.flow.push(f"public.{name}", Upserts(one.rows(self._schemas[name]), one.epochs, kinds))
        self.flow.step(upper)
        self.flow.advance_since(upper - 1)

    def _done(self) -> tuple[int, int, int]:
        accounts = [state.account for state in self._states]
        return sum(a.dropped for a in accounts), sum(a.bootstraps for a in accounts), sum(a.updates for a in accounts)


def _way(before: tuple[int, int, int], after: tuple[int, int, int]) -> str:
    """How a step was followed: the dearest of what its recursions did."""
    dropped, bootstraps, updates = (b - a for a, b in zip(before, after, strict=True))
    return "dropped" if dropped else "bootstrap" if bootstraps else "update" if updates else ""


SESSIONS: dict[str, Callable[[], Session]] = {
    name if strategy == "auto" else f"{name}/{strategy}": lambda p=program, s=strategy: Rules(declared(p, s))  # type: ignore[misc]
    for name, program in PROGRAMS.items()
    for strategy in STRATEGIES
}
