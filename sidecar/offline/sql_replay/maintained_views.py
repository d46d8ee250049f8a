"""Views over the tables of a script, kept by the product's own engine: changes in as epochs, rows out as text.

Always: each transaction's changes are one epoch; a view's rows are those of the last epoch that was stepped. Called by the
script's run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.connectors.copy_text import text_rows
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, UPSERT, Updates, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.schema import Schema
from headrace.sidecar.execution.live_errors import add_errors
from headrace.sidecar.offline.sql_replay.session import Row
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_query
from headrace.views.errors import ViewError
from headrace.views.plan import Import, Scan
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.traversal import walk


@dataclass
class MaintainedView:
    """A view that stands in the dataflow: what it holds, and in how many copies, and its live errors."""

    view: CompiledView
    output: Output
    tables: frozenset[str]
    rows: Counter[Row] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, taken: tuple[Updates, Updates]) -> None:
        """Add up what the view emitted."""
        rows, errors = taken
        for row, diff in zip(text_rows(self.view.schema, rows.rows), rows.diffs.tolist(), strict=True):
            self.rows[row] += diff
            if not self.rows[row]:
                del self.rows[row]
        add_errors(self.errors, errors)


class Views(Mapping[str, CompiledView]):
    """The script's views by name, each compiled when it is first looked up."""

    def __init__(self, queries: Mapping[str, str], catalog: Catalog) -> None:
        self._queries = queries
        self._catalog = catalog
        self._compiled: dict[str, CompiledView] = {}
        self._open: set[str] = set()

    def __getitem__(self, name: str) -> CompiledView:
        """The view. Raises KeyError for no such view, ViewError for one that is not supported."""
        if name not in self._compiled:
            sql = self._queries[name]
            if name in self._open:
                raise ViewError("views read each other in a circle", view=name)
            self._open.add(name)
            try:
                self._compiled[name] = compile_query(ViewSpec(name, sql), self._catalog, self, as_view=True)
            finally:
                self._open.discard(name)
        return self._compiled[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


class Maintained:
    """The dataflow with its tables. Single writer: the script's run."""

    def __init__(self) -> None:
        self._flow = Dataflow()
        self._flow.step(1)
        self.epoch = 0
        self.tables: dict[str, Schema] = {}
        self.unreadable: dict[str, str] = {}
        """Tables with a value that the engine cannot hold, and why."""
        self._rows: dict[str, Counter[Row]] = {}
        self._waiting: dict[str, list[tuple[int, int, Row]]] = {}
        """Of each table (epoch, kind, row) that the engine has not taken yet."""
        self.standing: list[MaintainedView] = []

    def declare(self, name: str, schema: Schema) -> None:
        """A new empty table."""
        self._flow.table(name, schema)
        self.tables[name], self._rows[name] = schema, Counter()

    def drop(self, name: str) -> None:
        """A table goes; nothing that stands may read it."""
        self._flow.drop_table(name)
        self.unreadable.pop(name, None)
        self._waiting.pop(name, None)
        del self.tables[name], self._rows[name]

    def rows(self, name: str) -> list[Row]:
        """The rows of a table, with their copies."""
        return list(self._rows[name].elements())

    def size(self, name: str) -> int:
        """How many rows a table has."""
        return self._rows[name].total()

    def transaction(self, changes: Iterable[tuple[str, Sequence[Row], Sequence[Row]]]) -> None:
        """One epoch: of each table the rows that went and those that came. Taken at the next `step`."""
        self.epoch += 1
        for name, removed, added in changes:
            rows = self._rows[name]
            rows.subtract(removed)
            rows.update(added)
            for row in removed:
                if not rows[row]:
                    del rows[row]
            keyed = self.tables[name].key is not None
            waiting = self._waiting.setdefault(name, [])
            waiting += [(self.epoch, DELETE if keyed else RETRACT, r) for r in removed]
            waiting += [(self.epoch, UPSERT if keyed else INSERT, r) for r in added]

    def step(self) -> frozenset[str]:
        """Take every transaction so far through all views; gives the tables that changed."""
        waiting, self._waiting = self._waiting, {}
        for name, changes in waiting.items():
            if changes:
                self._push(name, changes)
        self._flow.step(self.epoch + 1)
        for standing in self.standing:
            standing.add(standing.output.take())
        self._flow.advance_since(self.epoch)
        return frozenset(waiting)

    @property
    def waiting(self) -> bool:
        """Whether there are transactions that no step took in."""
        return bool(self._waiting)

    def again(self) -> Maintained:
        """A new engine with the same tables, and no views. A table that it cannot take in is unreadable."""
        made = Maintained()
        for name, schema in self.tables.items():
            made.declare(name, schema)
        made.transaction((name, (), self.rows(name)) for name in self.tables)
        try:
            made.step()
        except Exception as error:  # what a table holds must not end the script: its readers are refused
            made = Maintained()
            for name, schema in self.tables.items():
                made.declare(name, schema)
                made.unreadable[name] = f"{type(error).__name__}: {error}"
        return made

    def _push(self, name: str, changes: list[tuple[int, int, Row]]) -> None:
        schema = self.tables[name]
        arrays = []
        for position, column in enumerate(schema.columns):
            try:
                read = from_text(pa.array([row[position] for _, _, row in changes], pa.large_string()), column.type)
            except (pa.ArrowException, ValueError, ArithmeticError) as error:
                self.unreadable.setdefault(name, f'column "{column.name}": {error}')
                return
            if read.errors is not None and (messages := [e for e in read.errors.to_pylist() if e is not None]):
                self.unreadable.setdefault(name, f'column "{column.name}": {messages[0]}')
            arrays.append(read.values)
        epochs, kinds = np.array([e for e, _, _ in changes], np.int64), np.array([k for _, k, _ in changes], np.uint8)
        if name not in self.unreadable:
            self._flow.push(name, Upserts(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), epochs, kinds))

    def install(self, view: CompiledView, views: Mapping[str, CompiledView]) -> MaintainedView:
        """Make a view stand, at what its tables hold now."""
        rendered: dict[str, Collection] = {}
        collection = self._render(view, views, rendered)
        reads = frozenset(
            n.table for v in (view, *(views[r] for r in rendered)) for n in walk(v.plan) if isinstance(n, Scan)
        )
        found = MaintainedView(view, collection.output(view.name), reads)
        self.standing.append(found)
        found.add(found.output.snapshot(self.epoch))
        return found

    def _render(
        self, view: CompiledView, views: Mapping[str, CompiledView], rendered: dict[str, Collection]
    ) -> Collection:
        for node in walk(view.plan):
            if isinstance(node, Import) and node.view not in rendered:
                rendered[node.view] = self._render(views[node.view], views, rendered)
        return render(view, self._flow, rendered)

    def uninstall(self, standing: MaintainedView) -> None:
        """A view goes, with what only it needed."""
        self.standing.remove(standing)
        self._flow.drop(standing.output)

    def churn(self, names: Iterable[str], chance: random.Random) -> None:
        """Delete the rows of some tables and insert them again, a few at a time in a random order, a step each.

        Whatever ends it early, the tables have all their rows, so that `again` has them too.
        """
        whole = {name: self.rows(name) for name in sorted(names)}
        for rows in whole.values():
            chance.shuffle(rows)
        cuts = {name: chance.randint(0, len(rows)) for name, rows in whole.items()}
        try:
            self.transaction((n, rows[: cuts[n]], ()) for n, rows in whole.items())
            self.step()
            self.transaction((n, rows[cuts[n] :], rows[: cuts[n] // 2]) for n, rows in whole.items())
            self.step()
            self.transaction((n, (), rows[cuts[n] // 2 :]) for n, rows in whole.items())
            self.step()
        finally:
            self._rows |= {name: Counter(rows) for name, rows in whole.items()}
