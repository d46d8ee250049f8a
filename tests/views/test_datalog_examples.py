"""The programs of docs/datalog.md and of examples/datalog: each compiles, and answers as the naive twin does."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from examples.datalog.generate import EXAMPLES, Tables, sql_of
from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.datalog_text.grammar import parse_program
from headrace.views.limits import Unstratified
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import load, programs_views
from tests.oracle.datalog import rows_of
from tests.reference.datalog import Row, evaluate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "datalog.md").read_text()
PROGRAMS = {
    h.lower().replace(" ", "-"): p
    for h, p in re.findall(r"\n### ([^\n]+)\n(?:(?!```|\n### ).)*```datalog\n(.*?)```", PAGE, re.DOTALL)
}


def access(tmp_path: Path) -> str:
    """The access-control program, as the page's YAML has it."""
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "v.yaml").write_text(text)
    return load(tmp_path)[0].sql


def check(text: str) -> None:
    """Answers over random tables of numbers are the twin's."""
    program, rng = parse_program(text), random.Random(1)
    given: dict[str, set[Row]] = {}
    tables: dict[str, tuple[Schema, list[Row]]] = {}
    for item in program.inputs:
        arity = max(len(a.arguments) for r in program.rules for x in r.body if (a := getattr(x, "atom", None)) is not None
                    and a.name == item.name)  # fmt: skip
        names = [n for n, _ in item.given] if item.given is not None else list(item.columns or "abcd"[:arity])
        schema = Schema.of([Column(n, BIGINT, nullable=False) for n in names], tuple(names))
        rows: set[Row] = {tuple(rng.randint(1, 5) for _ in names) for _ in range(7)}
        tables[f"public.{item.table}"] = (schema, sorted(rows))
        given[item.name] = set(rows)
    views = compile_views(programs_views(ViewSpec("p", text)), Catalog({n: s for n, (s, _) in tables.items()}))
    flow = Dataflow()
    rendered: dict[str, Collection] = {}
    outputs = {}
    for name, (schema, _) in tables.items():
        flow.table(name, schema)
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.name] = rendered[view.name].output(view.name)
    for name, (schema, held) in tables.items():
        columns = [pa.array(c, pa.int64()) for c in zip(*held, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
        flow.push(name, Upserts(batch, np.zeros(len(held), np.int64), np.full(len(held), UPSERT, np.uint8)))
    flow.step(1)
    want = evaluate(text, given)
    for view in views:
        assert rows_of(outputs[view.name], view, 0) == Counter(want[view.spec.relation]), view.name
    assert any(want[o.name] for o in program.outputs)


def answers_of(text: str, tables: Tables) -> tuple[dict[str, Counter[Row]], dict[str, set[Row]]]:
    """The rows of each output of a program, as they are and as the twin has them."""
    program = parse_program(text)
    schemas = {f"public.{n}": Schema.of([Column(c, BIGINT, nullable=False) for c in columns], columns)
               for n, (columns, _) in tables.items()}  # fmt: skip
    rounds = re.search(r"unstratified: {rounds: (\d+)}", text)
    limit = None if rounds is None else Unstratified(rounds=int(rounds[1]))
    views = compile_views(programs_views(ViewSpec("p", text, unstratified=limit)), Catalog(schemas))
    flow, outputs = Dataflow(), {}
    rendered: dict[str, Collection] = {}
    for name, schema in schemas.items():
        flow.table(name, schema)
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.name] = rendered[view.name].output(view.name)
    for name, schema in schemas.items():
        rows = sorted(tables[name.partition(".")[2]][1])
        columns = [pa.array(c, pa.int64()) for c in zip(*rows, strict=True)] or [pa.array([], pa.int64())] * len(
            schema.columns
        )
        batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
        flow.push(name, Upserts(batch, np.zeros(len(rows), np.int64), np.full(len(rows), UPSERT, np.uint8)))
    flow.step(1)
    given = {i.name: set(tables[i.table][1]) for i in program.inputs}
    want = evaluate(text, given)
    found = {v.spec.relation: rows_of(outputs[v.name], v, 0) for v in views}
    return found, {n: want[n] for n in found}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_the_page(name: str) -> None:
    """On its own data, small enough for the twin."""
    found, want = answers_of(PROGRAMS[name], EXAMPLES[name](random.Random(3), 30 if name == "points-to" else 16))
    assert found == {n: Counter(rows) for n, rows in want.items()}
    assert all(want.values()), {n: len(r) for n, r in want.items()}


def test_the_text_of_the_editor_is_in_its_order() -> None:
    """Typed: "abc", then "x" after "a", of which "b" is removed: "axc"."""
    tables = {"characters": (("id", "after"), {(1, 0), (2, 1), (3, 2), (4, 1)}), "removals": (("id",), {(2,)})}
    found, _ = answers_of(PROGRAMS["text-editor"], tables)
    assert set(found["text"]) == {(0, 1), (1, 4), (4, 3)}


def test_totals_of_a_bill_of_materials() -> None:
    """A car has four wheels of five bolts, and two bolts of its own."""
    tables = {"parts": (("whole", "piece", "many"), {(1, 2, 4), (2, 3, 5), (1, 3, 2)})}
    found, _ = answers_of(PROGRAMS["bill-of-materials"], tables)
    assert set(found["total"]) == {(1, 2, 4), (1, 3, 22), (2, 3, 5)}


def test_each_heading_has_a_program_and_a_generator() -> None:
    headings = re.findall(r"\n### ([^\n]+)", PAGE)
    assert [h.lower().replace(" ", "-") for h in headings] == list(PROGRAMS) == list(EXAMPLES)


def test_the_generator_prints_sql() -> None:
    lines = list(sql_of(EXAMPLES["closure"](random.Random(1), 4)))
    assert (
        lines[0]
        == "CREATE TABLE public.edges (source bigint NOT NULL, target bigint NOT NULL, PRIMARY KEY (source, target));"
    )
    assert lines[1] == "COPY public.edges FROM STDIN;"
    assert lines[-1] == "\\."
    assert all(re.fullmatch(r"\d+\t\d+", line) for line in lines[2:-1])
    large = EXAMPLES["same-generation"](random.Random(1), 20_000)
    assert len(large["parents"][1]) == 19_999


def test_access_control(tmp_path: Path) -> None:
    check(access(tmp_path))


def test_the_example_is_the_page_s(tmp_path: Path) -> None:
    [spec, *_] = load(ROOT / "examples" / "datalog" / "views")
    assert spec.sql.replace("n > 2.", "n > 1000.") == access(tmp_path)
