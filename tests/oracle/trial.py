"""Queries on trial: kept by a dataflow through random transactions, and asked of a Postgres that has the same rows.

Always: both see one history, drawn from a seed, and are compared after each of its transactions: columns, values, copies,
errors. A query that one of them does not take is told apart from one that is answered differently. A query of whose tables
a transaction changes none is not asked again: ours may not change then. Called by the oracle's run and its test.
"""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TypeVar

from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow import Dataflow, Output
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.recursion.late import LATE
from headrace.engine.schema import Kind, Schema
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_query
from headrace.views.errors import ViewError
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_models import RecursionModel, Strategy
from tests.oracle.pipelined import Answer, Columns, Server, Table
from tests.oracle.test_views import Change, Row, Shop, bare, upserts
from tests.views.shop import TABLES, catalog, schema_of

Rows = dict[Row, int]
"""Rows with their copies, none of them zero; equal numerics are spelled alike: of equals with several scales any may stand."""
K = TypeVar("K", bound=Hashable)
STEPS = (0.05, 0.1, 0.4)
"""How often a step ends with a transaction: a history has steps of one transaction and of many, or mostly of many."""


@dataclass(frozen=True)
class Verdict:
    """What became of a query: `kind` is equal, different, refused (by us), invalid (to both), taken (by us alone) or broken
    (we raise what nobody may).

    `why`: the reason that was given, or where the answers part.
    """

    sql: str
    kind: str
    why: str = ""


@dataclass(frozen=True)
class Steps:
    """`work`: what a recursion, followed by `strategy`, may do in a step before it is late; then some is done between steps, and
    all of it after the last one. `returns`: is told each view that was late, once it is back.
    """

    work: int = 0
    strategy: Strategy = "auto"
    returns: list[str] = field(default_factory=list)


@dataclass
class _Kept:
    """A query that both took: what its view holds by now, and where in its rows numerics stand."""

    view: CompiledView
    output: Output
    reads: frozenset[str]
    numbers: tuple[int, ...]
    rows: Rows = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    last: Answer = ""

    @property
    def late(self) -> bool:
        """Whether a recursion of it is evaluated between steps: then it tells nothing."""
        return any(text.startswith(LATE) for text in self.errors)


def tried(
    server: Server,
    queries: Sequence[str],
    seed: int,
    transactions: int,
    steps: Steps | None = None,
) -> list[Verdict]:
    """The queries' verdicts, in their order, after so many transactions of the history `seed`."""
    steps = steps or Steps()
    chance, portions = random.Random(seed), random.Random(f"{seed}/portions")
    often = random.Random(f"{seed}/steps").choice(STEPS)
    shop, flow = Shop(chance), Dataflow()
    flow.late.step_work = steps.work
    for table in TABLES:
        flow.table(f"public.{table}", _schema_of(table))
    verdicts: dict[int, Verdict] = {}
    kept = _taken(server.begin(queries), queries, flow, verdicts, steps.strategy)
    waiting: list[tuple[int, Change]] = []
    answers: dict[int, Mapping[int, Answer]] = {}
    for epoch in range(transactions):
        changes = shop.transaction()
        touched = TABLES.keys() if epoch == 0 else {c.table for c in changes}
        asked = [k for k, one in kept.items() if epoch == 0 or not one.reads.isdisjoint(touched)]
        answers[epoch] = server.transaction(changes, asked)
        waiting += [(epoch, change) for change in changes]
        if chance.random() >= often and epoch < transactions - 1:
            continue
        _step(flow, waiting, epoch)
        waiting = []
        _compare(queries, kept, answers, verdicts, steps.returns)
        answers = {}
        flow.late.go_on(portions.choice([1, 10_000, 100_000]))
    last = transactions
    while flow.late and last < transactions + 10:  # one may read another
        flow.late.go_on(0)
        last += 1
        flow.step(last)
        _compare(queries, kept, {last - 1: {}}, verdicts, steps.returns)
    if flow.late:
        verdicts |= {k: Verdict(queries[k], "different", "it stays late") for k, one in kept.items() if one.late}
    return [verdicts.get(k, Verdict(sql, "equal")) for k, sql in enumerate(queries)]


def _compare(
    queries: Sequence[str],
    kept: dict[int, _Kept],
    answers: Mapping[int, Mapping[int, Answer]],
    verdicts: dict[int, Verdict],
    returns: list[str],
) -> None:
    """Give those that are answered differently their verdict, and keep them no more."""
    for k, one in list(kept.items()):
        was = one.late
        if why := _parts(one, answers, k):
            verdicts[k] = Verdict(queries[k], "different", why)
            del kept[k]
        elif was and not one.late:
            returns.append(one.view.name)


def _taken(
    theirs: Sequence[Columns | str],
    queries: Sequence[str],
    flow: Dataflow,
    verdicts: dict[int, Verdict],
    strategy: Strategy,
) -> dict[int, _Kept]:
    """The queries that both take with the same columns, put into the dataflow; the others get their verdict."""
    kept: dict[int, _Kept] = {}
    for k, sql in enumerate(queries):
        columns = theirs[k]
        try:
            view = compile_query(ViewSpec(f"q{k}", sql, recursion=RecursionModel(strategy=strategy)), _catalog(), {})
        except ViewError as error:
            verdicts[k] = Verdict(sql, "invalid" if isinstance(columns, str) else "refused", error.what)
            continue
        if isinstance(columns, str):
            verdicts[k] = Verdict(sql, "taken", columns)
            continue
        ours = tuple((c.name, bare(c.type)) for c in view.schema.columns)
        if ours != columns:
            verdicts[k] = Verdict(sql, "different", f"columns: ours {ours}, Postgres's {columns}")
            continue
        numbers = tuple(i for i, c in enumerate(view.schema.columns) if c.type.kind is Kind.NUMERIC)
        kept[k] = _Kept(view, render(view, flow, {}).output(f"q{k}"), _reads(sql), numbers)
    return kept


def _reads(sql: str) -> frozenset[str]:
    """The tables that a query may read: those whose names it has."""
    return frozenset(re.findall(r"\w+", sql)) & TABLES.keys()


@cache
def _catalog() -> Catalog:
    return catalog()


@cache
def _schema_of(table: str) -> Schema:
    return schema_of(table)


def _step(flow: Dataflow, waiting: Sequence[tuple[int, Change]], epoch: int) -> None:
    for table in TABLES:
        some = [(e, c) for e, c in waiting if c.table == table]
        if some:
            flow.push(f"public.{table}", upserts(table, some))
    flow.step(epoch + 1)
    flow.advance_since(epoch)


def _parts(one: _Kept, answers: Mapping[int, Mapping[int, Answer]], k: int) -> str:
    """Where our answers and Postgres's are not the same; empty if they are."""
    good, bad = one.output.take()
    rows, errors = _by_epoch(good, one.view.schema, one.numbers), _by_epoch(bad, None, ())
    for epoch in answers:
        was_late = one.late
        for row, diff in rows.get(epoch, ()):
            _add(one.rows, row, diff)
        for row, diff in errors.get(epoch, ()):
            _add(one.errors, str(row[0]), diff)
        theirs = answers[epoch].get(k)
        one.last = one.last if theirs is None else theirs
        if one.late:
            continue
        theirs = one.last if was_late else theirs
        if theirs is None:
            if epoch in rows or epoch in errors:
                return f"epoch {epoch}: ours changes, but no table that it reads does"
        elif why := _differ(one, theirs):
            return f"epoch {epoch}: {why}"
    return ""


def _differ(one: _Kept, theirs: Answer) -> str:
    if isinstance(theirs, str):
        return "" if theirs in one.errors else f"Postgres fails: {theirs}; ours: {list(one.errors) or 'does not'}"
    if one.errors:
        return f"ours fails: {next(iter(one.errors))}"
    other = plain(theirs, one.numbers)
    if one.rows == other:
        return ""
    mine_alone, other_alone = _less(one.rows, other), _less(other, one.rows)
    if _near(mine_alone, other_alone, one.view.schema):
        return ""
    return f"ours alone {mine_alone}, Postgres alone {other_alone}"


def _by_epoch(updates: Updates, schema: Schema | None, numbers: Sequence[int]) -> dict[int, list[tuple[Row, int]]]:
    """(row, change of its copies) by epoch; without a schema: columns that are text already."""
    found: dict[int, list[tuple[Row, int]]] = defaultdict(list)
    if len(updates):
        columns = updates.rows.columns
        if schema is not None:
            columns = [to_text(c, column.type) for c, column in zip(columns, schema.columns, strict=True)]
        texts = [c.to_pylist() for c in columns]
        rows = _alike_rows(texts, numbers) if texts else [()] * len(updates)
        for row, epoch, diff in zip(rows, updates.times.tolist(), updates.diffs.tolist(), strict=True):
            found[epoch].append((row, diff))
    return found


def plain(answer: Table, numbers: Sequence[int]) -> Rows:
    """The rows of an answer with their copies. `numbers`: where numerics stand, which have several spellings."""
    width = answer.width
    found: Rows = {}
    for row in _alike_rows([answer.cells[i::width] for i in range(width)], numbers):
        found[row] = found.get(row, 0) + 1
    return found


def _alike_rows(columns: Sequence[Sequence[str | None]], numbers: Sequence[int]) -> list[Row]:
    spelled = [list(map(_respelled, c)) if i in numbers else c for i, c in enumerate(columns)]
    return list(zip(*spelled, strict=True))


@lru_cache(65536)
def _respelled(text: str | None) -> str | None:
    return text if text is None or "." not in text else text.rstrip("0").rstrip(".")


def _add(held: dict[K, int], what: K, diff: int) -> None:
    copies = held.pop(what, 0) + diff
    if copies:
        held[what] = copies


def _less(one: Rows, other: Rows) -> Rows:
    """What `one` has more of."""
    more = {row: copies - other.get(row, 0) for row, copies in one.items()}
    lacking = {row: -copies for row, copies in other.items() if copies < 0 and row not in one}
    return {row: copies for row, copies in (more | lacking).items() if copies > 0}


def _near(mine: Rows, other: Rows, schema: Schema) -> bool:
    """Whether rows are the same but for the last digits of doubles, which Postgres adds up in the order that it meets them."""
    left = [row for row, copies in other.items() for _ in range(copies)]
    for row in (row for row, copies in mine.items() for _ in range(copies)):
        partner = next((o for o in left if all(map(_alike, row, o, (c.type.kind for c in schema.columns)))), None)
        if partner is None:
            return False
        left.remove(partner)
    return not left


def _alike(mine: str | None, other: str | None, kind: Kind) -> bool:
    if mine == other or mine is None or other is None or kind is not Kind.DOUBLE:
        return mine == other
    return math.isclose(float(mine), float(other), rel_tol=1e-12, abs_tol=1e-12)
