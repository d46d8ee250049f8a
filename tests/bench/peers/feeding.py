"""How our side's sessions feed the engine: columns in files cut into physical batches, pushed and stepped a lap each.

Always: a lap holds everything from numbers in memory to the last node's output (Arrow rows made, pushed, stepped, since
advanced); reading files and adding up checksums is outside. Called by the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import INSERT, RETRACT, UPSERT, Int64s, Updates, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.dataflow.node import Node
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.schema import TEXT, Schema
from tests.bench.peers.columns import Lane, checksum, read
from tests.bench.peers.laps import Answer


@dataclass(frozen=True)
class Slice:
    """The updates of one physical batch: Arrow `columns`, `epochs`, `diffs`."""

    columns: list[pa.Array]
    epochs: Int64s
    diffs: Int64s

    def __len__(self) -> int:
        return len(self.epochs)

    def rows(self, schema: Schema) -> pa.RecordBatch:
        """The columns as rows."""
        return pa.RecordBatch.from_arrays(self.columns[: len(schema.columns)], schema=schema.arrow)


class Source:
    """The columns of `prefix`, as rows of `schema` that wait; without epochs all are of `now`, without diffs inserts."""

    def __init__(self, prefix: str, schema: Schema, now: int) -> None:
        numbers = {c.name: read(prefix, c.name) for c in schema.columns if c.type != TEXT}
        self.size = next(len(lane) for lane in numbers.values() if lane is not None)
        self._lanes: list[Lane] = []
        for column in schema.columns:
            lane: Lane | None = numbers.get(column.name)
            if column.type == TEXT:
                lane = np.fromfile(f"{prefix}.{column.name}", np.uint8).reshape(self.size, -1)
            assert lane is not None, f"{prefix}.{column.name}"
            self._lanes.append(lane)
        times, diffs = read(prefix, "epoch"), read(prefix, "diff")
        self._times = np.full(self.size, now) if times is None else times
        self._diffs = np.ones(self.size, np.int64) if diffs is None else diffs
        self._at = 0

    @property
    def waits(self) -> bool:
        """Whether there is more."""
        return self._at < self.size

    def before(self, upper: int) -> Slice:
        """What is of the epochs before `upper` and was not taken yet."""
        begin, self._at = self._at, int(np.searchsorted(self._times, upper))
        cut = slice(begin, self._at)
        return Slice([_arrow(lane, begin, self._at) for lane in self._lanes], self._times[cut], self._diffs[cut])


def _arrow(lane: Lane, begin: int, end: int) -> pa.Array:
    if lane.ndim == 1:
        return pa.array(lane[begin:end])
    width = lane.shape[1]
    offsets = np.arange(begin * width, (end + 1) * width, width)
    return pa.Array.from_buffers(pa.large_string(), end - begin, [None, pa.py_buffer(offsets), pa.py_buffer(lane)])


def words_of(rows: pa.RecordBatch) -> list[Lane]:
    """The 64-bit words of each row: of a text, of one width in its column, several; of a numeric the lowest."""
    words: list[Lane] = []
    for column in rows.columns:
        if pa.types.is_integer(column.type):
            words.append(column.to_numpy())
            continue
        buffers = column.buffers()
        data = np.frombuffer(buffers[-1], "<i8") if len(column) else np.empty(0, np.int64)
        if pa.types.is_decimal(column.type):
            words.append(data[column.offset * 2 : (column.offset + len(column)) * 2 : 2])
            continue
        ends = np.frombuffer(buffers[1], np.int64, len(column) + 1, column.offset * 8)
        width = int(ends[1] - ends[0]) if len(column) else 8
        assert (np.diff(ends) == width).all(), "texts of one width"
        assert width % 8 == 0, "texts of whole words"
        table = data[ends[0] // 8 : ends[-1] // 8].reshape(-1, width // 8)
        words += [np.ascontiguousarray(table[:, k]) for k in range(width // 8)]
    return words


class Given(Node):
    """A collection that is handed in, to a step, as it is: nothing is kept of it."""

    label = "given"
    waits_for_input = False

    def __init__(self, name: str, schema: Schema) -> None:
        super().__init__(name, schema, ())
        self.next = QUIET

    def step(self, lower: int, upper: int) -> None:
        self.delta, self.next = self.next, QUIET


class Session:
    """One process's work. A command is a method of a prefix and a number."""

    def commands(self) -> dict[str, Callable[[str, int], Answer]]:
        """Verb → what does it."""
        return {"run": self.run}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Feed the changes of `prefix`, `epochs` a physical batch."""
        raise NotImplementedError


Fed = tuple[Sequence[str], Schema, str]
"""Tables that are fed alike, their schema, and the prefix of their columns."""


class Flow(Session):
    """A dataflow and its outputs."""

    def __init__(self) -> None:
        self.flow = Dataflow()
        self.outputs: list[Output] = []
        self.given: dict[str, Given] = {}

    def give(self, name: str, schema: Schema) -> Collection:
        """A collection in place of a table: fed alike, it keeps nothing."""
        node = self.given[name] = Given(name, schema)
        return Collection(self.flow, self.flow.intern(name, lambda: node), schema)

    def feed(self, fed: Sequence[Fed], epochs: int) -> Answer:
        """Push each prefix's changes into its tables, and step, a physical batch of all of them a lap."""
        upper = self.flow.frontier
        sources = [(tables, schema, Source(prefix, schema, upper)) for tables, schema, prefix in fed]
        answer = Answer(rows=sum(source.size for *_, source in sources))
        while any(source.waits for *_, source in sources):
            upper += epochs
            cut = [(tables, schema, source.before(upper)) for tables, schema, source in sources]
            answer.lap(lambda cut=cut, upper=upper: self._step(cut, upper))  # type: ignore[misc]
            for output in self.outputs:
                self.take(output, answer, timed=True)
        return answer

    def _step(self, cut: Sequence[tuple[Sequence[str], Schema, Slice]], upper: int) -> None:
        for tables, schema, one in cut:
            for table in tables if len(one) else ():
                if table in self.given:
                    self.given[table].next = Delta(Updates(one.rows(schema), one.epochs, one.diffs), None)
                else:
                    self.flow.push(table, upserts_of(schema, one))
        self.flow.step(upper)
        self.flow.advance_since(upper - 1)

    def take(self, output: Output, answer: Answer, *, timed: bool) -> None:
        """Add the checksum of what left; `timed`: epochs count. Raises AssertionError for a view in error."""
        rows, errors = output.take()
        assert not len(errors), errors.rows.to_pydict()
        words = words_of(rows.rows)
        answer.add(checksum([*words, rows.times] if timed else words, rows.diffs), len(rows))


def upserts_of(schema: Schema, one: Slice) -> Upserts:
    """A batch as a table takes it: with a key, of each pair of -old and +new just the new row; without, every update."""
    if not schema.key:
        kinds = np.where(one.diffs > 0, INSERT, RETRACT).astype(np.uint8)
        return Upserts(one.rows(schema), one.epochs, kinds)
    rows, epochs = one.rows(schema), one.epochs
    if one.diffs.min() < 0:
        new = np.flatnonzero(one.diffs > 0)
        rows, epochs = rows.take(pa.array(new)), epochs[new]
    return Upserts(rows, epochs, np.full(len(epochs), UPSERT, np.uint8))
