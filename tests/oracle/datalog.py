"""Datalog programs drawn at random against the naive twin, under random inserts and deletes in steps cut anywhere.

`python -m tests.oracle.datalog --programs N --seed S [--epochs E]` runs N of them and prints the first program that differs. A
program has 1 to 12 relations in groups that read each other, rules that are not linear, negation and aggregates of lower groups,
one in the other and in arguments too, several heads, alternatives, named arguments, relations without columns, NULLs, numbers and
texts.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import DELETE, UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.schema import BIGINT, BOOLEAN, TEXT, Column, Schema
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, check_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import programs_views
from tests.crash import counts
from tests.oracle.test_views import images
from tests.reference.datalog import Row, evaluate

TABLES = {
    "e": ("n", "n"),
    "f": ("n", "n"),
    "g": ("n", "s"),
    "h": ("n", "n", "s"),
}
"""The types of the tables' columns behind the key: numbers and texts."""

INPUTS = "".join(
    f".input {name}({', '.join(f'c{i}' for i in range(len(types)))}) = public.{name}"
    f"({', '.join(f'c{i}' for i in range(len(types)))})\n"
    for name, types in TABLES.items()
)


def catalog() -> Catalog:
    """The tables, each with a key of its own beside the columns that programs read."""
    return Catalog({f"public.{name}": schema_of(name) for name in TABLES})


def schema_of(name: str) -> Schema:
    """A table's schema."""
    kinds = {"n": BIGINT, "s": TEXT}
    columns = [Column(f"c{i}", kinds[t], nullable=True) for i, t in enumerate(TABLES[name])]
    return Schema.of([Column("id", BIGINT, nullable=False), *columns], ("id",))


@dataclass
class Drawn:
    """Draws one program. `shapes`: the types of each relation's columns. `extremes`: also with `min` and `max` in their own
    recursion, and NULLs in heads.
    """

    rng: random.Random
    shapes: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(TABLES))
    extremes: bool = False

    def program(self) -> str:
        """Its text."""
        rng, text = self.rng, [INPUTS]
        count = rng.randint(1, 12)
        made = 0
        while made < count:
            group = [f"r{made + i}" for i in range(min(rng.choice((1, 1, 1, 2, 3)), count - made))]
            lower = list(self.shapes)
            for name in group:
                width = 0 if not self.extremes and rng.random() < 0.1 else rng.randint(1, 3)
                self.shapes[name] = tuple(rng.choice("nnns") for _ in range(width))
            text += [self.rules(name, group, lower) for name in group]
            made += len(group)
        if self.extremes:
            text += [self.extreme(i) for i in range(rng.choice((0, 1, 1, 2)))]
        outputs = [n for n in self.shapes if n not in TABLES and rng.random() < 0.5] or [f"r{count - 1}"]
        if rng.random() < 0.5:
            atom, found = self.atom(rng.choice(list(self.shapes)), {}, fresh=True)
            numbers = [v for v, t in found.items() if t == "n"]
            text.append(f".constraint never: {atom}, {numbers[0]} > 1.\n" if numbers else "")
        if self.extremes and rng.random() < 0.5:
            text.append(self.records())
            outputs.append("picked")
        return "".join(text) + f".output {', '.join(outputs)}\n"

    def extreme(self, number: int) -> str:
        """Two relations that read each other: the values along edges, and the best of each node."""
        rng, (way, best) = self.rng, (f"w{number}", f"m{number}")
        function = rng.choice(("min", "max"))
        edges = [n for n, kinds in self.shapes.items() if kinds[:2] == ("n", "n") and " " not in n]
        first, second = rng.choice(edges), rng.choice(edges)
        more = [", _" * (len(self.shapes[n]) - 2) for n in (first, second)]
        # Along a cycle a maximum may not rise for ever.
        longer = f"d + {rng.randint(0, 2)}" if function == "min" else "d"
        bound = f", d {'<=' if function == 'min' else '>='} {rng.randint(0, 4)}" if rng.random() < 0.3 else ""
        self.shapes[way] = self.shapes[best] = ("n", "n")
        return (
            f"{way}(x, {rng.choice(('y', '1', 'y % 3'))}) :- {first}(x, y{more[0]}).\n"
            f"{way}(y, {longer}) :- {best}(x, d), {second}({rng.choice(('x, y', 'y, x'))}{more[1]}){bound}.\n"
            f"{best}(y, v) :- {way}(y, _), v = {function} d : {{ {way}(y, d) }}.\n"
        )

    def records(self) -> str:
        """A relation whose column holds records, one in the other, which its recursion hands on, and one of their fields."""
        rng = self.rng
        edges = [n for n, kinds in self.shapes.items() if kinds == ("n", "n")]
        first, second = rng.choice(edges), rng.choice(edges)
        read, last = rng.choice(
            (("[x, [w, _]]", "w"), ("[x, [_, w]]", "w"), ("[x, _]", "1"), (f"[x, [{rng.randint(0, 4)}, _]]", "x"))
        )
        self.shapes.update(pairs=("n", "n", "n", "n"), pairs0=("n", "n"), picked=("n", "n", "n"))
        return (
            f"pairs([x, [y, 2]], x) :- {first}(x, y).\n"
            f"pairs(v, z) :- pairs(v, y), {second}({rng.choice(('y, z', 'z, y'))}), !pairs0([_, z]).\n"
            f"pairs0([x, y]) :- {first}(x, y), x = y.\n"
            f"picked(x, {last}, z) :- pairs({read}, z).\n"
        )

    def rules(self, name: str, group: Sequence[str], lower: Sequence[str]) -> str:
        """The rules of a relation, the first of which reads lower ones alone."""
        rng = self.rng
        found = [self.rule(name, lower, lower)]
        found += [self.rule(name, [*lower, *group, *group, *group], lower) for _ in range(rng.randint(0, 2))]
        if rng.random() < 0.1:
            found.append(f"{name}({', '.join(self.constant(t) for t in self.shapes[name])}).\n")
        return "".join(found)

    def rule(self, name: str, readable: Sequence[str], lower: Sequence[str]) -> str:
        """One rule."""
        rng = self.rng
        bound: dict[str, str] = {}
        body: list[str] = []
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            atom, bound = self.atom(rng.choice(readable), bound)
            body.append(atom)
        numbers = [v for v, t in bound.items() if t == "n"]
        if rng.random() < 0.3 and numbers:
            body.append(f"{rng.choice(numbers)} {rng.choice(('<', '<=', '!=', '>', '>=', '='))} {self.number(numbers)}")
        if rng.random() < 0.2 and numbers:
            value = f"({self.number(numbers)} + 1) % 5"
            body.append(f"v = {value}" if rng.random() < 0.5 else f"{value} = v")
            bound["v"] = "n"
        if rng.random() < 0.3:
            body.append("!" + self.atom(rng.choice(lower), bound, reading=True)[0])
        if rng.random() < 0.25:
            body.append(self.aggregate(bound, lower))
        rng.shuffle(body)
        if rng.random() < 0.1 and len(body) > 1:
            body[-1] = f"({body[-1]} ; {body[-1]})"
        head = ", ".join(self.value(t, bound) for t in self.shapes[name])
        return f"{name}({head}) :- {', '.join(body)}.\n"

    def aggregate(self, bound: dict[str, str], lower: Sequence[str]) -> str:
        """`n = count : { … }`, which adds `n` to the bound variables, or a comparison with one."""
        rng = self.rng
        outer = {v: t for v, t in bound.items() if rng.random() < 0.5}
        inner: dict[str, str] = dict(outer)
        atoms = []
        for _ in range(rng.choice((1, 1, 2))):
            atom, inner = self.atom(rng.choice(lower), inner, prefix="i")
            atoms.append(atom)
        numbers = [v for v, t in inner.items() if t == "n"]
        if numbers and rng.random() < 0.3:
            atoms.append(f"{rng.choice(numbers)} < {rng.randint(1, 4)}")
        if numbers and not self.extremes and rng.random() < 0.2:
            # One in the other, of which some variables are the outer one's.
            atoms.append(
                f"k = count : {{ {self.atom(rng.choice(lower), inner, prefix='j')[0]} }}, k < {rng.randint(1, 5)}"
            )
        function = rng.choice(("count", "sum", "min", "max")) if numbers else "count"
        # The sum of a number of the recursion may rise for ever.
        summed = [v for v in numbers if v not in outer] or ["1"]
        value = "" if function == "count" else f" {rng.choice(summed if function == 'sum' else numbers)}"
        text = f"{function}{value} : {{ {', '.join(atoms)} }}"
        chance = rng.random()
        if chance < 0.2:
            return f"{text} > 1"
        if chance < 0.35 and not self.extremes:
            # In an argument: `f` has two numbers.
            known = [v for v, t in bound.items() if t == "n"] or ["_"]
            return f"{rng.choice(('', '!'))}f({text}, {rng.choice(known)})"
        if chance < 0.45 and not self.extremes and numbers and (own := rng.choice(numbers)) not in bound:
            # The name of what is aggregated is also the result's.
            bound[own] = "n"
            return f"{own} = {text}"
        bound["n"] = "n"
        return f"n = {text}"

    def atom(
        self,
        name: str,
        bound: dict[str, str],
        *,
        reading: bool = False,
        fresh: bool = False,
        prefix: str = "x",
    ) -> tuple[str, dict[str, str]]:
        """An atom and the variables bound after it; `reading`: it binds none; `fresh`: all of its arguments are new."""
        rng = self.rng
        now = dict(bound)
        parts = []
        for kind in self.shapes[name]:
            same = [v for v, t in now.items() if t == kind]
            chance = rng.random()
            if fresh or (chance < 0.5 and not reading) or (chance < 0.6 and not same and not reading):
                variable = f"{prefix}{len(now) + (prefix != 'x') * 10}" if not fresh else f"x{len(now)}"
                now[variable] = kind
                parts.append(variable)
            elif same and chance < 0.85:
                parts.append(rng.choice(same))
            elif chance < 0.95:
                parts.append("_")
            else:
                parts.append(self.constant(kind))
        if name in TABLES and rng.random() < 0.2:
            kept = [f"c{i} = {p}" for i, p in enumerate(parts) if p != "_"]
            rng.shuffle(kept)
            if kept:
                return f"{name}({', '.join(kept)})", now
        return f"{name}({', '.join(parts)})", now

    def constant(self, kind: str) -> str:
        """A literal."""
        return str(self.rng.randint(0, 4)) if kind == "n" else f'"{self.rng.choice("ab")}"'

    def number(self, numbers: Sequence[str]) -> str:
        """A variable that is a number, or a literal."""
        return self.rng.choice(numbers) if self.rng.random() < 0.6 else self.constant("n")

    def value(self, kind: str, bound: dict[str, str]) -> str:
        """An argument of a head."""
        same = [v for v, t in bound.items() if t == kind]
        if self.extremes and self.rng.random() < 0.03:
            return f"null::{'bigint' if kind == 'n' else 'text'}"
        if not same or self.rng.random() < 0.05:
            return self.constant(kind)
        chosen = self.rng.choice(same)
        # The remainder keeps recursions finite; numbers of sums are brought back, too.
        return f"({chosen} + 1) % 5" if kind == "n" and self.rng.random() < 0.2 else chosen


Change = tuple[str, int, Row | None]
"""A table, a key, and its row, or None where it goes."""


def drawn_changes(rng: random.Random, epochs: int) -> list[list[Change]]:
    """The changes of each epoch."""
    found: list[list[Change]] = []
    for _ in range(epochs):
        changes: dict[tuple[str, int], Change] = {}
        for _ in range(rng.choice((1, 2, 4, 8))):
            table, key = rng.choice(list(TABLES)), rng.randint(1, 8)
            row = tuple(_drawn(rng, t) for t in TABLES[table])
            changes[table, key] = (table, key, None if rng.random() < 0.35 else row)
        found.append(list(changes.values()))
    return found


def _drawn(rng: random.Random, kind: str) -> int | str | None:
    if rng.random() < 0.1:
        return None
    return rng.randint(0, 4) if kind == "n" else rng.choice("ab")


def upserts(table: str, changes: Sequence[tuple[int, Change]]) -> Upserts:
    """The changes of one table, with their epochs."""
    schema = schema_of(table)
    rows = [(key, *(row or (None,) * len(TABLES[table]))) for _, (_, key, row) in changes]
    arrays = [pa.array([r[i] for r in rows], f.type) for i, f in enumerate(schema.arrow)]
    kinds = np.array([DELETE if c[2] is None else UPSERT for _, c in changes], np.uint8)
    return Upserts(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), np.array([e for e, _ in changes]), kinds)


def compiled(text: str) -> tuple[CompiledView, ...]:
    """The views of a program. Raises ViewError."""
    checked = check_views(programs_views(ViewSpec("p", text)), catalog())
    if checked.errors:
        raise checked.errors[0]
    return checked.views


def rows_of(output: Output, view: CompiledView, epoch: int) -> Counter[Row]:
    """A view's rows with how often each is there; errors are rows of one text."""
    good, bad = output.snapshot(epoch)
    found: Counter[Row] = Counter()
    for row, _, diff in images(good, Schema(view.schema.columns)):
        found[tuple(_read(t, c) for t, c in zip(row, view.schema.columns, strict=True))] += diff
    for error in bad.rows.to_pylist():
        found[("error", str(error))] += 1
    return Counter({row: n for row, n in found.items() if n})


def _read(text: str | None, column: Column) -> int | str | None:
    return text if text is None or column.type in (TEXT, BOOLEAN) else int(Decimal(text))


def trial(seed: int, epochs: int) -> str:
    """What differs in one program's run; empty where nothing does."""
    rng = random.Random(seed)
    text = Drawn(rng).program()
    views = compiled(text)
    flow = Dataflow()
    for name in TABLES:
        flow.table(f"public.{name}", schema_of(name))
    rendered: dict[str, Collection] = {}
    outputs: dict[str, Output] = {}
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.name] = rendered[view.name].output(view.name)
    held: dict[str, dict[int, Row]] = {name: {} for name in TABLES}
    waiting: list[tuple[int, Change]] = []
    for epoch, changes in enumerate(drawn_changes(rng, epochs)):
        for change in changes:
            table, key, row = change
            waiting.append((epoch, change))
            if row is None:
                held[table].pop(key, None)
            else:
                held[table][key] = row
        if rng.random() < 0.3 and epoch < epochs - 1:
            continue
        for name in TABLES:
            due = [(e, c) for e, c in waiting if c[0] == name]
            if due:
                flow.push(f"public.{name}", upserts(name, due))
        waiting = []
        flow.step(epoch + 1)
        want = evaluate(text, {name: set(rows.values()) for name, rows in held.items()})
        for view in views:
            # A relation without columns is put out with one.
            wanted = Counter(row or ("t",) for row in want[view.spec.relation])
            got = rows_of(outputs[view.name], view, epoch)
            if got != wanted:
                return (
                    f"seed {seed}, epoch {epoch}, {view.name}: missing {wanted - got}, too many {got - wanted}\n{text}"
                )
    return ""


def main() -> None:
    """Run programs until one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    given = parser.parse_args()
    started = time.monotonic()
    for seed in range(given.seed, given.seed + given.programs):
        found = trial(seed, given.epochs)
        if found:
            raise SystemExit(found)
        if (seed - given.seed) % 50 == 49:
            print(f"{seed - given.seed + 1} programs so far: 0 different", flush=True)
    facts = {"seed": given.seed, "programs": given.programs, "epochs": given.epochs, "different": 0}
    counts.write("datalog", {**facts, "seconds": round(time.monotonic() - started)})
    print(f"{given.programs} programs of {given.epochs} epochs, seeds from {given.seed}: 0 different")


if __name__ == "__main__":
    main()
