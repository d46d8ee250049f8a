"""Soufflé's evaluation tests: each program's relations, with its facts arriving and leaving in random order.

`python -m tests.proof_suites SUITES=FOLDER` calls it for a clone of Soufflé. A test is a folder with a program, facts and the
relations that are expected. What only says how Soufflé is to run (.pragma, .plan, inline, the format of files) is left out, and
inputs are tables; all else is the program as it is.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import DELETE, UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.schema import BIGINT, DOUBLE, TEXT, Column, Schema
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, check_views
from headrace.views.errors import ViewError
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.view_files import programs_views
from tests.oracle.test_views import images

EPOCHS = 4
SECONDS = 60
"""How long a test may take: each is some milliseconds of work in Soufflé."""
OTHER_PATTERNS = frozenset({"bad_regex", "match4"})
"""Tests of patterns that are no regular expressions of C++, and others of Postgres's."""
KINDS = {"number": BIGINT, "unsigned": BIGINT, "float": DOUBLE}
_COMMENTS = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DECLARED = re.compile(r"\.decl\s+([^()]+)\(([^()]*)\)")
_TYPED = re.compile(r"\.type\s+([\w.]+)\s*(?:=|<:)\s*([\w.]+)")
_SAID = re.compile(r"\.(input|output|printsize)\s+([\w.?]+(?:\s*,\s*[\w.?]+)*)\s*(\([^()]*\))?")
_LEFT_OUT = re.compile(
    r"\.pragma[^\n]*|\.plan[^\n]*|\b(?:inline|no_inline|magic|no_magic|btree|brie)\b(?=[^\n(]*$)", re.MULTILINE
)


@dataclass(frozen=True)
class Outcome:
    """How a test ended: `equal`, `refused` or `different`, and why."""

    name: str
    how: str
    why: str = ""


@dataclass(frozen=True)
class Test:
    """A test as it is run: the program's text, the rows of its inputs, and the files that it expects."""

    text: str
    inputs: Mapping[str, tuple[Schema, list[tuple[object, ...]]]]
    expected: Mapping[str, Path]
    sizes: Mapping[str, int]


def outcomes(folder: Path, seed: int) -> Iterator[Outcome]:
    """What became of each test of a clone's `tests/evaluation`."""
    for test in sorted(p for p in folder.iterdir() if (p / f"{p.name}.dl").exists()):
        yield _in_time(test, seed)


def _in_time(test: Path, seed: int) -> Outcome:
    """What becomes of a test in a process of its own, which has SECONDS."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=lambda: theirs.send(_outcome(test, seed)), daemon=True)
    child.start()
    theirs.close()
    try:
        if ours.poll(SECONDS):
            return ours.recv()
        return Outcome(test.name, "different", f"it has not ended after {SECONDS} seconds")
    except EOFError:
        return Outcome(test.name, "different", "its process ended without an answer")
    finally:
        child.kill()
        child.join()


def _outcome(test: Path, seed: int) -> Outcome:
    if test.name in OTHER_PATTERNS:
        return Outcome(test.name, "refused", "its patterns are not Postgres's regular expressions")
    try:
        return _ran(test, random.Random(f"{seed} {test.name}"))
    except ViewError as error:
        return Outcome(test.name, "refused", error.what)
    except _Unread as why:
        return Outcome(test.name, "refused", str(why))
    except Exception as error:  # whatever breaks is a difference, and the others go on
        return Outcome(test.name, "different", f"{type(error).__name__}: {error}")


class _Unread(Exception):
    """What the harness does not read."""


def read(folder: Path) -> Test:
    """A test from its folder."""
    path = folder / f"{folder.name}.dl"
    text = path.read_text()
    if re.search(r"^\s*#", text, re.MULTILINE):
        text = subprocess.run(["cpp", "-P", str(path)], check=True, capture_output=True, text=True).stdout
    text = _COMMENTS.sub(lambda m: m[1] or " ", text)
    columns = {
        name.strip(): [part.partition(":")[::2] for part in inner.split(",") if part.strip()]
        for names, inner in _DECLARED.findall(text)
        for name in names.split(",")
    }
    types = dict(_TYPED.findall(text))
    inputs: dict[str, tuple[Schema, list[tuple[object, ...]]]] = {}
    expected: dict[str, Path] = {}
    sizes: dict[str, int] = {}
    said = dict(line.split("\t") for line in _lines(folder / f"{folder.name}.out") if line.count("\t") == 1)

    def directive(match: re.Match[str]) -> str:
        word, names, options = match[1], re.split(r"\s*,\s*", match[2]), match[3] or ""
        found = []
        for name in names:
            given = dict(re.findall(r'(\w+)\s*=\s*"?([^",()]*)"?', options))
            if word == "input":
                if name not in columns:
                    raise _Unread(f"the input {name} is not declared where it is read")
                inputs[name] = _facts(folder, name, columns[name], types, given)
                found.append(f".input {name} = public.{name.lower()}")
            elif word == "output":
                expected[name] = folder / given.get("filename", f"{name}.csv")
                found.append(f".output {name}")
            elif name in said:
                sizes[name] = int(said[name])
                found.append(f".output {name}" if name not in expected else "")
        return "\n".join(found) + "\n"

    text = _LEFT_OUT.sub("", _SAID.sub(directive, text))
    return Test(_once(text), inputs, expected, sizes)


def _once(text: str) -> str:
    """Each relation put out once."""
    seen: set[str] = set()
    lines = []
    for line in text.splitlines():
        if line.startswith(".output "):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines)


def _facts(
    folder: Path, name: str, columns: Sequence[Sequence[str]], types: Mapping[str, str], given: Mapping[str, str]
) -> tuple[Schema, list[tuple[object, ...]]]:
    """An input's table, with a key of its own before its columns, and its rows."""
    kinds = []
    for _, spelled in columns:
        kind = spelled.strip()
        while kind in types:
            kind = types[kind]
        kinds.append(KINDS.get(kind, TEXT))
    names = [column.strip().lower() for column, _ in columns]
    schema = Schema.of(
        [
            Column("fact_id", BIGINT, nullable=False),
            *(Column(n, k, nullable=False) for n, k in zip(names, kinds, strict=True)),
        ],
        ("fact_id",),
    )
    path = folder / "facts" / given.get("filename", f"{name}.facts")
    delimiter = given.get("delimiter", "\t").replace("\\t", "\t")
    rows = []
    for line in _lines(path):
        parts = line.split(delimiter) if kinds else []
        if len(parts) != len(kinds):
            raise _Unread(f"a line of {path.name} has {len(parts)} columns in the place of {len(kinds)}")
        rows.append(tuple(_value(p, k == TEXT, k == DOUBLE) for p, k in zip(parts, kinds, strict=True)))
    return schema, rows


def _value(text: str, is_text: bool, is_float: bool) -> object:
    if is_text:
        return text
    if is_float:
        return float(text)
    return int(text, 0) if text.lower().startswith(("0x", "0b")) else int(text)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _ran(folder: Path, rng: random.Random) -> Outcome:
    test = read(folder)
    tables = {f"public.{name.lower()}": schema for name, (schema, _) in test.inputs.items()}
    text = test.text
    for name, (schema, _) in test.inputs.items():
        own = f"({', '.join(schema.names[1:])})"
        text = text.replace(f".input {name} = public.{name.lower()}", f".input {name} = public.{name.lower()}{own}")
    checked = check_views(programs_views(ViewSpec("suite", text)), Catalog(tables))
    if checked.errors:
        raise checked.errors[0]
    flow = Dataflow()
    for name, schema in tables.items():
        flow.table(name, schema)
    rendered: dict[str, Collection] = {}
    for view in checked.views:
        rendered[view.name] = render(view, flow, rendered)
    outputs = {view.spec.relation: (view, rendered[view.name].output(view.name)) for view in checked.views}
    for epoch in range(EPOCHS):
        for name, (schema, rows) in test.inputs.items():
            _push(flow, f"public.{name.lower()}", schema, rows, epoch, rng)
        flow.step(epoch + 1)
    found = {}
    for relation, (view, output) in outputs.items():
        good, bad = output.snapshot(EPOCHS - 1)
        if len(bad):
            return Outcome(folder.name, "different", f"{relation} is in error: {bad.rows.column(0)[0]}")
        found[relation] = list(images(good, Schema(view.schema.columns)))
    for relation, path in test.expected.items():
        why = _compared(outputs[relation][0], found[relation], _lines(path))
        if why:
            return Outcome(folder.name, "different", f"{relation}: {why}")
    for relation, size in test.sizes.items():
        if len(found[relation]) != size:
            return Outcome(
                folder.name, "different", f"{relation} has {len(found[relation])} rows, and {size} are expected"
            )
    return Outcome(folder.name, "equal")


def _push(
    flow: Dataflow, table: str, schema: Schema, rows: Sequence[tuple[object, ...]], epoch: int, rng: random.Random
) -> None:
    """Some facts come and some leave; in the last epoch all that are missing come."""
    last = epoch == EPOCHS - 1
    chosen = [k for k in range(len(rows)) if last or rng.random() < 0.5]
    gone = [] if last else [k for k in range(len(rows)) if rng.random() < 0.3]
    order = [(k, UPSERT) for k in chosen] + [(k, DELETE) for k in gone]
    rng.shuffle(order)
    latest = dict(order)
    if last:
        latest = dict.fromkeys(chosen, UPSERT)
    if not latest:
        return
    arrays = [pa.array([(k, *rows[k])[c] for k in latest], f.type) for c, f in enumerate(schema.arrow)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    kinds = np.array(list(latest.values()), np.uint8)
    flow.push(table, Upserts(batch, np.full(len(latest), epoch), kinds))


def _compared(view: CompiledView, rows: Sequence[tuple[Sequence[str | None], int, int]], lines: Sequence[str]) -> str:
    """What differs between a view's rows and the lines of a file, which tells a relation without columns as ()."""
    columns = view.schema.columns
    if view.schema.names == ("holds",):
        lines = ["t" for _ in lines]
    got = Counter(tuple(_spelled(t, c.type == DOUBLE) for t, c in zip(row, columns, strict=True)) for row, _, _ in rows)
    want: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        parts = line.split("\t")
        want[tuple(_spelled(p, c.type == DOUBLE) for p, c in zip(parts, columns, strict=False))] += 1
    if got == want:
        return ""
    return f"missing {list(want - got)[:3]}, too many {list(got - want)[:3]}"


def _spelled(text: str | None, is_float: bool) -> str:
    if not is_float or text is None:
        return "" if text is None else text
    value = float(text)
    return "nan" if math.isnan(value) else f"{value:.5g}"
