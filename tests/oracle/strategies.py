"""Recursions by state against `history`, which keeps every round: the same rows and errors at each epoch, byte for byte.

`python -m tests.oracle.strategies --queries N --seed S`: queries of `recursive_cases` and programs of `datalog`, each kept
twice in one dataflow through random transactions; by state the strategy of each step is drawn, and so is the budget of an
Update. What each epoch put out is compared, and what is answered about an epoch of before. Prints the first that differs.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.recursive import RecursiveNode
from headrace.engine.recursion.switching import Strategy
from headrace.views.compile import CompiledView, compile_query
from headrace.views.errors import ViewError
from headrace.views.limits import MOST_ROUNDS, MOST_ROWS
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_models import RecursionModel
from tests.oracle import datalog, recursive_cases
from tests.oracle.test_views import Change, Shop, upserts
from tests.views.shop import TABLES, catalog, schema_of

HISTORY = RecursionModel(strategy="history")
TRANSACTIONS = 12


@dataclass
class Account:
    """What was run: recursions by state, and how their steps were followed."""

    queries: int = 0
    kept: int = 0
    followed: Counter[str] = field(default_factory=Counter)


class Pairs:
    """Views of one dataflow, each by state and by history."""

    def __init__(self, flow: Dataflow, rng: random.Random) -> None:
        self.flow = flow
        self.rng = rng
        self.outputs: list[tuple[str, Output, Output]] = []
        self.since = 0

    def add(self, views: Sequence[CompiledView]) -> None:
        """Views that read each other."""
        both: list[dict[str, Collection]] = [{}, {}]
        for view in views:
            ways = (view, replace(view, spec=replace(view.spec, recursion=HISTORY)))
            for rendered, way in zip(both, ways, strict=True):
                rendered[view.name] = render(way, self.flow, rendered)
            one, other = (rendered[view.name].output(view.name) for rendered in both)
            self.outputs.append((view.spec.sql, one, other))

    def nodes(self) -> list[RecursiveNode]:
        """The recursions that are by state."""
        nodes = reachable(one.collection.node for _, one, _ in self.outputs)
        return sorted((n for n in nodes if isinstance(n, RecursiveNode)), key=lambda n: n.fingerprint)

    def step(self, upper: int) -> str:
        """Take a step, each recursion by a strategy of its own; where the two ways part, or nothing."""
        for node in self.nodes():
            state = node.state
            state.strategy = self.rng.choice([Strategy.UPDATE, Strategy.UPDATE, Strategy.BOOTSTRAP, Strategy.AUTO])
            if state.strategy is Strategy.AUTO:
                state.least, state.switch = self.rng.choice(
                    [(1, 1e-9), (10, 1e-9), (100, 1e-9), (1 << 40, 1e-9), (1, None)]
                )
        self.flow.step(upper)
        asked = self.rng.randrange(self.since, upper)
        for sql, one, other in self.outputs:
            for what, got, want in (
                ("put out", one.take(), other.take()),
                (f"answered about {asked}", one.snapshot(asked), other.snapshot(asked)),
            ):
                if list(map(_plain, got)) != list(map(_plain, want)):
                    return f"step to {upper}, {what}: {_plain(got[0])} {_plain(got[1])} for {list(map(_plain, want))}\n{sql}"
        if self.rng.random() < 0.5:
            self.since = self.rng.randrange(self.since, upper)
            self.flow.advance_since(self.since)
        return ""

    def told(self, account: Account) -> None:
        """Add up what was done."""
        for node in self.nodes():
            account.kept += 1
            for name in ("bootstraps", "updates", "dropped"):
                account.followed[name] += getattr(node.state.account, name)


_EXAMPLES = re.compile(r"(which brings \d+ more), as .*?(; bound it)", re.DOTALL)
"""Of a step of several epochs history shows rows of the last one alone."""


def _plain(updates: Updates) -> list[tuple[object, ...]]:
    columns = [c.to_pylist() for c in updates.rows.columns]
    if updates.rows.schema.names == ["error"]:
        columns = [[_EXAMPLES.sub(r"\1\2", str(text)) for text in columns[0]]]
    found: Counter[tuple[object, ...]] = Counter()
    for *row, diff in zip(*columns, updates.times.tolist(), updates.diffs.tolist(), strict=True):
        found[tuple(row)] += diff
    return sorted(((*row, diff) for row, diff in found.items() if diff), key=repr)


def queries_differ(seed: int, account: Account) -> str:
    """What differs of five queries; empty where nothing does."""
    rng = random.Random(seed)
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    pairs = Pairs(flow, rng)
    for k, sql in enumerate(recursive_cases.queries_of(seed, 5)):
        try:
            rows = rng.choice([MOST_ROWS, MOST_ROWS, 3, 20])
            rounds = rng.choice([MOST_ROUNDS, MOST_ROUNDS, 2])
            pairs.add([compile_query(ViewSpec(f"q{k}", sql, rows=rows, rounds=rounds), catalog(), {})])
            account.queries += 1
        except ViewError:
            continue
    shop = Shop(rng)
    waiting: list[tuple[int, Change]] = []
    for epoch in range(TRANSACTIONS):
        waiting += [(epoch, change) for change in shop.transaction()]
        if rng.random() < 0.5 and epoch < TRANSACTIONS - 1:
            continue
        for table in TABLES:
            some = [(e, c) for e, c in waiting if c.table == table]
            if some:
                flow.push(f"public.{table}", upserts(table, some))
        waiting = []
        if found := pairs.step(epoch + 1):
            return f"seed {seed}, {found}"
    pairs.told(account)
    return ""


def program_differs(seed: int, account: Account) -> str:
    """What differs of a program; empty where nothing does."""
    rng = random.Random(seed)
    text = datalog.Drawn(rng, extremes=rng.random() < 0.5).program()
    flow = Dataflow()
    for name in datalog.TABLES:
        flow.table(f"public.{name}", datalog.schema_of(name))
    pairs = Pairs(flow, rng)
    pairs.add(datalog.compiled(text))
    account.queries += 1
    waiting: list[tuple[int, datalog.Change]] = []
    for epoch, changes in enumerate(datalog.drawn_changes(rng, TRANSACTIONS)):
        waiting += [(epoch, change) for change in changes]
        if rng.random() < 0.3 and epoch < TRANSACTIONS - 1:
            continue
        for name in datalog.TABLES:
            due = [(e, c) for e, c in waiting if c[0] == name]
            if due:
                flow.push(f"public.{name}", datalog.upserts(name, due))
        waiting = []
        if found := pairs.step(epoch + 1):
            return f"seed {seed}, {found}\n{text}"
    pairs.told(account)
    return ""


def main() -> None:
    """Run queries and programs until one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    account = Account()
    for seed in range(given.seed, given.seed + given.queries // 5):
        if found := queries_differ(seed, account):
            raise SystemExit(found)
    for seed in range(given.seed, given.seed + given.programs):
        if found := program_differs(seed, account):
            raise SystemExit(found)
    print(f"{account.queries} queries and programs, seeds from {given.seed}: 0 different")
    print(f"{account.kept} recursions by state: {dict(account.followed)}")


if __name__ == "__main__":
    main()
