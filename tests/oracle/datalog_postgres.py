"""Datalog programs drawn at random against Postgres, which runs the same rules as a PL/pgSQL loop until nothing is new.

`python -m tests.oracle.datalog_postgres --programs N --seed S [--epochs E]` runs N of them on a server of its own and prints the
first program that differs. The rules are written as SELECTs from the syntax tree alone: nothing of the binder, of strata or of
the plan is known here, and Postgres finds what NULLs, types and sets mean.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

from headrace.engine.dataflow import Collection, Dataflow
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.datalog_text.grammar import parse_program
from headrace.views.datalog_text.syntax import (
    Aggregate,
    Atom,
    Condition,
    Expression,
    Literal,
    Negative,
    Positive,
    Program,
    Rule,
    expressions_of,
    names_of,
)
from headrace.views.datalog_text.tokens import Token, string_value
from headrace.views.render import render
from tests.crash import counts
from tests.oracle.datalog import TABLES, Drawn, compiled, drawn_changes, rows_of, schema_of, upserts
from tests.reference.datalog import Row, _groups, _outside, _variables

KINDS = {"n": "numeric", "s": "text"}


class Select:
    """One conjunction as a SELECT. `around`: the SQL of the variables that it has from outside."""

    def __init__(self, body: Sequence[Literal], around: Mapping[str, str], rule: Rule, depth: int = 0) -> None:
        self.env = dict(around)
        self.rule = rule
        self.depth = depth
        self.tables: list[str] = []
        self.conditions: list[str] = []
        self.made: dict[Aggregate, str] = {}
        waiting: list[tuple[str, Expression]] = []
        for literal in body:
            if isinstance(literal, Positive):
                waiting += self.atom(literal.atom)
        rest = [x for x in body if not isinstance(x, Positive)]
        while waiting or rest:
            ready = next((w for w in waiting if self.known(w[1])), None)
            if ready is not None:
                waiting.remove(ready)
                self.conditions.append(f"{ready[0]} = {self.spelled(ready[1])}")
                continue
            done = next(x for x in rest if self.settled(x))
            rest.remove(done)

    def atom(self, atom: Atom) -> list[tuple[str, Expression]]:
        """Joins an atom; the columns that equal an expression are given back."""
        alias = f"t{self.depth}_{len(self.tables)}"
        self.tables.append(f'"{atom.name}" {alias}')
        later = []
        for place, argument in enumerate(atom.arguments):
            if argument.value is None:
                continue
            column = f"{alias}.{argument.name or f'c{place}'}"
            name = argument.value.variable
            if name is None:
                later.append((column, argument.value))
            elif name in self.env:
                self.conditions.append(f"{column} = {self.env[name]}")
            else:
                self.env[name] = column
        return later

    def known(self, expression: Expression) -> bool:
        """Whether all of an expression's variables, and those that its aggregates have from outside, have values."""
        names = {t.text for t in names_of(expression) if t.text != "null"}
        for aggregate in expression.aggregates:
            names |= _outside(self.rule) & _variables(aggregate)
        return names <= set(self.env)

    def settled(self, literal: Literal) -> bool:
        """Whether a literal could be taken in."""
        if isinstance(literal, Negative):
            if not all(self.known(e) for e in expressions_of(literal)):
                return False
            pairs = [
                f"n.{a.name or f'c{i}'} = {self.spelled(a.value)}"
                for i, a in enumerate(literal.atom.arguments)
                if a.value is not None
            ]
            where = " and ".join(pairs) or "true"
            self.conditions.append(f'not exists (select 1 from "{literal.atom.name}" n where {where})')
            return True
        assert isinstance(literal, Condition)
        if self.known(literal.expression):
            self.conditions.append(self.spelled(literal.expression))
            return True
        sides = literal.expression.equated()
        for one, other in [] if sides is None else [sides, sides[::-1]]:
            if one.variable is not None and one.variable not in self.env and self.known(other):
                self.env[one.variable] = f"({self.spelled(other)})"
                return True
        return False

    def spelled(self, expression: Expression | None) -> str:
        """An expression in SQL."""
        assert expression is not None
        return "(" + " ".join(self.piece(p) for p in expression.pieces) + ")"

    def piece(self, piece: Token | Aggregate) -> str:
        """A token, or an aggregate as a scalar subquery."""
        if isinstance(piece, Aggregate):
            return self.aggregate(piece)
        if piece.kind == "string":
            return "'" + string_value(piece).replace("'", "''") + "'::text"
        if piece.kind == "number":
            return f"{piece.text}::numeric"
        return self.env.get(piece.text, piece.text) if piece.kind == "name" else piece.text

    def aggregate(self, aggregate: Aggregate) -> str:
        """The value of an aggregate; the extreme of nothing leaves no row."""
        names = _outside(self.rule) & _variables(aggregate)
        inner = Select(aggregate.body, {n: self.env[n] for n in names}, self.rule, self.depth + 1)
        if aggregate.value is None:
            return f"(select count(*) {inner.rest()})"
        # In a query of its own, or an aggregate of what is outside would be one of the query around it.
        rows = f"from (select {inner.spelled(aggregate.value)} as v {inner.rest()}) q"
        if aggregate.function == "sum":
            return f"(select case when count(*) = 0 then 0 else sum(q.v) end {rows})"
        exists = f"exists (select 1 {inner.rest()})"
        if exists not in self.conditions:
            self.conditions.append(exists)
        return f"(select {aggregate.function}(q.v) {rows})"

    def rest(self) -> str:
        """FROM and WHERE."""
        tables = f"from {', '.join(self.tables)}" if self.tables else ""
        return f"{tables} where {' and '.join(self.conditions) or 'true'}"


def rows_sql(rule: Rule, kinds: Sequence[str]) -> str:
    """The rows of a rule's head."""
    found = Select(rule.body, {}, rule)
    values = (f"{found.spelled(a.value)}::{KINDS[k]}" for a, k in zip(rule.head.arguments, kinds, strict=True))
    return f"select distinct {', '.join(values)} {found.rest()}"


def loop_sql(program: Program, shapes: Mapping[str, Sequence[str]]) -> str:
    """The block that fills the tables of all relations."""
    text = ["do $loop$ declare added bigint; n bigint; begin"]
    text += [f'delete from "{name}";' for name in shapes if name not in TABLES]
    for group, counted in _groups(program):
        rules = [(r.head.name, rows_sql(r, shapes[r.head.name])) for r in program.rules if r.head.name in group]
        text.append("loop added := 0;")
        if counted:
            text += [f'delete from "next {n}";' for n in group]
            text += [f'insert into "next {n}" ({sql} except select * from "next {n}");' for n, sql in rules]
            for name in group:
                one, two = f'select * from "{name}"', f'select * from "next {name}"'
                text.append(f"select count(*) into n from (({one} except {two}) union all ({two} except {one})) d;")
                text.append("added := added + n;")
            text += [f'delete from "{n}"; insert into "{n}" select * from "next {n}";' for n in group]
        else:
            for name, sql in rules:
                text.append(f'insert into "{name}" ({sql} except select * from "{name}");')
                text.append("get diagnostics n = row_count; added := added + n;")
        text.append("exit when added = 0; end loop;")
    return "\n".join([*text, "end $loop$"])


class Server:
    """A database in which one program after the other is run."""

    def __init__(self, url: str) -> None:
        self.db = psycopg.connect(url, autocommit=True)

    def begin(self, shapes: Mapping[str, Sequence[str]]) -> None:
        """Makes the tables of a program, all empty."""
        self.db.execute("drop schema if exists datalog cascade; create schema datalog; set search_path = datalog")
        made = []
        for name, kinds in shapes.items():
            columns = ", ".join(f"c{i} {KINDS[k]}" for i, k in enumerate(kinds))
            key = "id bigint primary key, " if name in TABLES else ""
            table = f"table {name}" if name in TABLES else name
            made.append(f'create unlogged table "{table}" ({key}{columns});')
            if name in TABLES:
                # A relation has each row once, whatever its table's keys are.
                listed = ", ".join(f"c{i}" for i in range(len(kinds)))
                made.append(f'create view "{name}" as select distinct {listed} from "{table}";')
            else:
                made.append(f'create unlogged table "next {name}" ({columns});')
        self.db.execute("".join(made))

    def change(self, table: str, key: int, row: Row | None) -> None:
        """One row of a table."""
        self.db.execute(f'delete from "table {table}" where id = %s', (key,))  # type: ignore[call-overload]
        if row is not None:
            marks = ", ".join(["%s"] * (1 + len(row)))
            self.db.execute(f'insert into "table {table}" values ({marks})', (key, *row))  # type: ignore[call-overload]

    def rows(self, name: str) -> Counter[Row]:
        """A relation's rows."""
        found = self.db.execute(f'select * from "{name}"').fetchall()  # type: ignore[call-overload]
        return Counter(tuple(map(_plain, row)) for row in found)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value


def trial(server: Server, seed: int, epochs: int) -> str:
    """What differs in one program's run; empty where nothing does."""
    rng = random.Random(seed)
    drawn = Drawn(rng, extremes=True)
    text = drawn.program()
    program = parse_program(text)
    views = [v for v in compiled(text) if not v.spec.relation.startswith("constraint ")]
    server.begin(drawn.shapes)
    loop = loop_sql(program, drawn.shapes)
    flow = Dataflow()
    for name in TABLES:
        flow.table(f"public.{name}", schema_of(name))
    rendered: dict[str, Collection] = {}
    outputs = {}
    for view in compiled(text):
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.name] = rendered[view.name].output(view.name)
    for epoch, changes in enumerate(drawn_changes(rng, epochs)):
        for name in TABLES:
            due = [(epoch, c) for c in changes if c[0] == name]
            if due:
                flow.push(f"public.{name}", upserts(name, due))
        flow.step(epoch + 1)
        for table, key, row in changes:
            server.change(table, key, row)
        if rng.random() < 0.4 and epoch < epochs - 1:
            continue
        server.db.execute(loop)  # type: ignore[call-overload]
        for view in views:
            got, want = rows_of(outputs[view.name], view, epoch), server.rows(view.spec.relation)
            if got != want:
                where = f"seed {seed}, epoch {epoch}, {view.name}"
                return f"{where}: missing {want - got}, too many {got - want}\n{text}"
    return ""


def main() -> None:
    """Run programs until one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder)) as postgres:
        server = Server(postgres.url())
        for seed in range(given.seed, given.seed + given.programs):
            found = trial(server, seed, given.epochs)
            if found:
                raise SystemExit(found)
            if (seed - given.seed) % 10 == 9:
                sys.stdout.write(f"{seed - given.seed + 1} programs so far: 0 different\n")
                sys.stdout.flush()
    facts = {"seed": given.seed, "programs": given.programs, "epochs": given.epochs, "different": 0}
    counts.write("datalog_postgres", {**facts, "seconds": round(time.monotonic() - started)})
    sys.stdout.write(f"{given.programs} programs of {given.epochs} epochs, seeds from {given.seed}: 0 different\n")


if __name__ == "__main__":
    main()
