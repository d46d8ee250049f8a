"""Queries on trial: kept by a dataflow through random transactions, and asked of a Postgres that has the same rows.

Always: both see one history, drawn from a seed; a query that one of them does not take is told apart from one that is
answered differently. Called by the oracle's run and its test.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import psycopg

from engine.dataflow import Dataflow, Output
from engine.schema import Kind, Schema
from tests.oracle.test_views import Change, Mirror, Row, Rows, Shop, add, at, upserts
from tests.views.shop import TABLES, catalog, schema_of
from views.compile import CompiledView, compile_query
from views.errors import ViewError
from views.render import render
from views.spec import ViewSpec


@dataclass(frozen=True)
class Verdict:
    """What became of a query: `kind` is equal, different, refused (by us), invalid (to both) or taken (by us alone).

    `why`: the reason that was given, or where the answers part.
    """

    sql: str
    kind: str
    why: str = ""


@dataclass
class _Kept:
    view: CompiledView
    output: Output
    rows: Rows
    errors: Rows


def tried(connection: psycopg.Connection, queries: Sequence[str], seed: int, transactions: int) -> list[Verdict]:
    """The queries' verdicts, in their order, after so many transactions of the history `seed`; one database a call."""
    chance = random.Random(seed)
    shop, mirror = Shop(chance), Mirror(connection, ())
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    verdicts: dict[int, Verdict] = {}
    kept: dict[int, _Kept] = {}
    for k, sql in enumerate(queries):
        theirs = _refusal(connection, k, sql)
        try:
            view = compile_query(ViewSpec(f"q{k}", sql), catalog(), {})
        except ViewError as error:
            verdicts[k] = Verdict(sql, "invalid" if theirs else "refused", error.what)
            continue
        if theirs:
            verdicts[k] = Verdict(sql, "taken", theirs)
            continue
        kept[k] = _Kept(view, render(view, flow, {}).output(f"q{k}"), Counter(), Counter())
    waiting: list[tuple[int, Change]] = []
    answers: dict[int, dict[int, Rows | str]] = {}
    for epoch in range(transactions):
        changes = shop.transaction()
        mirror.apply(changes)
        answers[epoch] = {k: mirror.answer(f"q{k}") for k in kept if k not in verdicts}
        waiting += [(epoch, change) for change in changes]
        if chance.random() < 0.7 and epoch < transactions - 1:
            continue
        _step(flow, waiting, epoch)
        waiting = []
        for k, one in kept.items():
            if k not in verdicts and (why := _parts(one, answers, k)):
                verdicts[k] = Verdict(queries[k], "different", why)
        answers = {}
    return [verdicts.get(k, Verdict(sql, "equal")) for k, sql in enumerate(queries)]


def _refusal(connection: psycopg.Connection, number: int, sql: str) -> str:
    """Why Postgres does not take a query as a view; empty if it does."""
    try:
        connection.execute(f'create view "q{number}" as {sql}')
    except psycopg.Error as error:
        return str(error.diag.message_primary)
    return ""


def _step(flow: Dataflow, waiting: Sequence[tuple[int, Change]], epoch: int) -> None:
    for table in TABLES:
        some = [(e, c) for e, c in waiting if c.table == table]
        if some:
            flow.push(f"public.{table}", upserts(table, some))
    flow.step(epoch + 1)
    flow.advance_since(epoch)


def _parts(one: _Kept, answers: dict[int, dict[int, Rows | str]], k: int) -> str:
    """Where our answers and Postgres's are not the same; empty if they are."""
    good, bad = one.output.take()
    for epoch in sorted(answers):
        add(one.rows, one.errors, (at(good, epoch), at(bad, epoch)), one.view.schema)
        theirs = answers[epoch][k]
        failing = [m[0] for m, n in one.errors.items() if n]
        if isinstance(theirs, str):
            if not failing:
                return f"epoch {epoch}: Postgres fails: {theirs}"
            continue
        if failing:
            return f"epoch {epoch}: ours fails: {failing[0]}"
        mine, other = plain(one.rows, one.view.schema), plain(theirs, one.view.schema)
        if mine != other and not _near(mine - other, other - mine, one.view.schema):
            return f"epoch {epoch}: ours alone {dict(mine - other)}, Postgres alone {dict(other - mine)}"
    return ""


def plain(rows: Rows, schema: Schema) -> Rows:
    """Rows in which equal numbers are spelled alike: of equals with several scales either may be kept."""
    numbers = [i for i, c in enumerate(schema.columns) if c.type.kind in (Kind.NUMERIC, Kind.DOUBLE, Kind.REAL)]
    found: Rows = Counter()
    for row, copies in rows.items():
        if copies:
            found[_respelled(row, numbers)] += copies
    return found


def _near(mine: Rows, other: Rows, schema: Schema) -> bool:
    """Whether rows are the same but for the last digits of doubles, which Postgres adds up in the order that it meets them."""
    left = list(other.elements())
    for row in mine.elements():
        partner = next((o for o in left if all(map(_alike, row, o, (c.type.kind for c in schema.columns)))), None)
        if partner is None:
            return False
        left.remove(partner)
    return not left


def _alike(mine: str | None, other: str | None, kind: Kind) -> bool:
    if mine == other or mine is None or other is None or kind is not Kind.DOUBLE:
        return mine == other
    return math.isclose(float(mine), float(other), rel_tol=1e-12, abs_tol=1e-12)


def _respelled(row: Row, numbers: Sequence[int]) -> Row:
    cells = list(row)
    for i in numbers:
        text = cells[i]
        if text is not None:
            cells[i] = str(Decimal(text).normalize())
    return tuple(cells)
