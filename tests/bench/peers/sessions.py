"""Our side's sessions: the same collections as the peer's, on the engine's own faces, with no path of their own.

Always: a lap holds everything from numbers in memory to the last node's output (Arrow rows made, pushed, stepped, since
advanced); reading files and adding up checksums is outside. Called by `ours`, and by tests on tiny data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.batch import Batch, Description, Layout, Updates
from engine.batch.updates import INSERT, RETRACT, UPSERT, Int64s, Upserts
from engine.dataflow import Collection, Dataflow, Output
from engine.dataflow.collection import COUNT_ROWS
from engine.lattice import Frontier
from engine.schema import BIGINT, TEXT, Column, Schema
from engine.trace import Spine
from tests.bench.peers.columns import TEXT as TEXT_BYTES
from tests.bench.peers.columns import Lane, checksum, read
from tests.bench.peers.laps import Answer

KEY = Column("key", BIGINT)
KEYS = Schema((KEY,))
PAIRS = Schema((KEY, Column("value", BIGINT)))
TEXTS = Schema((KEY, Column("value", TEXT)))
BY_KEY = Schema(KEYS.columns, key=(0,))
ROWS = Schema(PAIRS.columns, key=(0,))
COUNTS = Schema((KEY, Column("count", BIGINT)))
QUERIES = 10


@dataclass(frozen=True)
class Slice:
    """The updates of one physical batch: Arrow `columns`, `epochs`, `diffs`; all before `upper`."""

    columns: list[pa.Array]
    epochs: Int64s
    diffs: Int64s
    upper: int

    def rows(self, schema: Schema) -> pa.RecordBatch:
        """The columns as rows."""
        return pa.RecordBatch.from_arrays(self.columns[: len(schema.columns)], schema=schema.arrow)


def slices(prefix: str, schema: Schema, now: int, epochs: int) -> tuple[int, Iterator[Slice]]:
    """How many updates a prefix holds, and they in batches of `epochs` epochs from `now` on."""
    lanes: list[Lane] = []
    for column in schema.columns:
        name = "text" if column.type == TEXT else column.name
        lane = np.fromfile(f"{prefix}.text", np.uint8) if name == "text" else read(prefix, name)
        assert lane is not None, f"{prefix}.{name}"
        lanes.append(lane)
    size = len(lanes[0])
    times, diffs = read(prefix, "epoch"), read(prefix, "diff")
    at = np.full(size, now) if times is None else times
    changes = np.ones(size, np.int64) if diffs is None else diffs

    def cut() -> Iterator[Slice]:
        begin, upper = 0, now
        while begin < size:
            upper += epochs
            end = int(np.searchsorted(at, upper))
            columns = [_arrow(lane, begin, end) for lane in lanes]
            yield Slice(columns, at[begin:end], changes[begin:end], upper)
            begin = end

    return size, cut()


def _arrow(lane: Lane, begin: int, end: int) -> pa.Array:
    if lane.dtype == np.int64:
        return pa.array(lane[begin:end])
    offsets = np.arange(begin * TEXT_BYTES, (end + 1) * TEXT_BYTES, TEXT_BYTES)
    return pa.Array.from_buffers(pa.large_string(), end - begin, [None, pa.py_buffer(offsets), pa.py_buffer(lane)])


def words_of(rows: pa.RecordBatch) -> list[Lane]:
    """The 64-bit words of each row, a text as four."""
    words: list[Lane] = []
    for column in rows.columns:
        if pa.types.is_integer(column.type):
            words.append(column.to_numpy())
            continue
        _, offsets, data = column.buffers()
        start = np.frombuffer(offsets, np.int64, 1, column.offset * 8)[0]
        table = np.frombuffer(data, "<i8", len(column) * TEXT_BYTES // 8, int(start)).reshape(-1, TEXT_BYTES // 8)
        words += [np.ascontiguousarray(table[:, k]) for k in range(TEXT_BYTES // 8)]
    return words


class Session:
    """One process's work. A command is a method of a prefix and a number."""

    def commands(self) -> dict[str, Callable[[str, int], Answer]]:
        """Verb → what does it."""
        return {"run": self.run}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Feed the changes of `prefix`, `epochs` a physical batch."""
        raise NotImplementedError


class Arrangement(Session):
    """One spine that is kept."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._layout = Layout(schema, (0,))
        self._spine = Spine(self._layout)
        self._upper = 0

    def commands(self) -> dict[str, Callable[[str, int], Answer]]:
        """Feed it; add it up."""
        return {"run": self.run, "content": self.content}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Seal and insert each physical batch."""
        answer = Answer()
        answer.rows, batches = slices(prefix, self._schema, self._upper, epochs)
        for one in batches:
            answer.lap(lambda one=one: self._take(one))  # type: ignore[misc]
        return answer

    def _take(self, one: Slice) -> None:
        updates = Updates(one.rows(self._schema), one.epochs, one.diffs)
        self._spine.insert(Batch.seal(self._layout, updates, Description.epochs(self._upper, one.upper)))
        self._upper = one.upper
        self._spine.advance(Frontier.at(one.upper - 1))

    def content(self, prefix: str, number: int) -> Answer:
        """What the arrangement adds up to."""
        found = self._spine.snapshot(self._upper - 1)
        answer = Answer()
        answer.add(checksum(words_of(found.rows), found.diffs), len(found))
        return answer


class Flow(Session):
    """A dataflow and its outputs."""

    def __init__(self) -> None:
        self.flow = Dataflow()
        self.outputs: list[Output] = []

    def feed(self, tables: list[str], schema: Schema, prefix: str, epochs: int) -> Answer:
        """Push a prefix's changes into each table alike, and step, a physical batch a lap."""
        answer = Answer()
        answer.rows, batches = slices(prefix, schema, self.flow.frontier, epochs)
        for one in batches:
            answer.lap(lambda one=one: self._step(tables, schema, one))  # type: ignore[misc]
            for output in self.outputs:
                self.take(output, answer, timed=True)
        return answer

    def _step(self, tables: list[str], schema: Schema, one: Slice) -> None:
        for table in tables:
            self.flow.push(table, upserts_of(schema, one))
        self.flow.step(one.upper)
        self.flow.advance_since(one.upper - 1)

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


class Reduction(Flow):
    """Counts or distinct rows of a keyless table."""

    def __init__(self, *, distinct: bool) -> None:
        super().__init__()
        keys = self.flow.table("keys", KEYS)
        self.outputs = [(keys.distinct() if distinct else keys.reduce([0], [COUNT_ROWS], COUNTS)).output("out")]

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the table."""
        return self.feed(["keys"], KEYS, prefix, epochs)


class Join(Flow):
    """Keys, themselves a table, joined with a table of rows by its own primary key."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = self.flow.table("rows", ROWS)
        self.outputs = [asking(self.flow.table("asked", BY_KEY), self.rows).output("out")]

    def commands(self) -> dict[str, Callable[[str, int], Answer]]:
        """Change the rows; ask for keys."""
        return {"run": self.run, "query": self.query}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the rows."""
        return self.feed(["rows"], ROWS, prefix, epochs)

    def query(self, prefix: str, epochs: int) -> Answer:
        """Keys that are asked for."""
        return self.feed(["asked"], BY_KEY, prefix, epochs)


def asking(keys: Collection, rows: Collection) -> Collection:
    """key, value of the rows of some keys."""
    return keys.join(rows, [0], [0], columns=(0, 2))


class Install(Flow):
    """Queries that come and go over one live table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = self.flow.table("rows", ROWS)
        self._asked = 0

    def commands(self) -> dict[str, Callable[[str, int], Answer]]:
        """Change the rows; install and drop queries."""
        return {"run": self.run, "install": self.install}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the rows."""
        return self.feed(["rows"], ROWS, prefix, epochs)

    def install(self, prefix: str, keys: int) -> Answer:
        """A query of every `keys` keys: built, answered, dropped. Laps alternate: install, drop."""
        answer = Answer()
        wanted = read(prefix, "key")
        assert wanted is not None
        answer.rows = len(wanted)
        for start in range(0, len(wanted), keys):
            output = answer.lap(lambda part=wanted[start : start + keys]: self._ask(part))  # type: ignore[misc]
            self.take(output, answer, timed=False)
            answer.lap(lambda output=output: self._drop(output))  # type: ignore[misc]
        return answer

    def _drop(self, output: Output) -> None:
        self.flow.drop(output)
        self.flow.drop_table(output.name)

    def _ask(self, keys: Int64s) -> Output:
        flow = self.flow
        name = f"asked{self._asked}"
        self._asked += 1
        output = asking(flow.table(name, BY_KEY), self.rows).output(name)
        one = Slice([pa.array(keys)], np.full(len(keys), flow.frontier), np.ones(len(keys), np.int64), 0)
        flow.push(name, upserts_of(BY_KEY, one))
        flow.step(flow.frontier + 1)
        return output


class Queries(Flow):
    """Ten queries over one table, or each with a table of its own."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self._tables = ["rows"] if shared else [f"rows{k}" for k in range(QUERIES)]
        rows = [self.flow.table(name, ROWS) for name in self._tables]
        asked = [self.flow.table(f"asked{k}", BY_KEY) for k in range(QUERIES)]
        pairs = zip(asked, rows * QUERIES if shared else rows, strict=False)
        self.outputs = [asking(keys, table).output(f"out{k}") for k, (keys, table) in enumerate(pairs)]

    def commands(self) -> dict[str, Callable[[str, int], Answer]]:
        """Change the rows; give the queries their keys."""
        return {"run": self.run, "query": self.query}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the rows."""
        return self.feed(self._tables, ROWS, prefix, epochs)

    def query(self, prefix: str, keys: int) -> Answer:
        """So many keys for each query, seen with the next run."""
        wanted = read(prefix, "key")
        assert wanted is not None
        for k in range(QUERIES):
            part = wanted[k * keys : (k + 1) * keys]
            one = Slice([pa.array(part)], np.full(len(part), self.flow.frontier), np.ones(len(part), np.int64), 0)
            self.flow.push(f"asked{k}", upserts_of(BY_KEY, one))
        return Answer(rows=len(wanted))


class Paths(Flow):
    """Pairs of nodes that are asked for over the edges of a graph: nodes one or two hops on, or amid paths of four."""

    def __init__(self, hops: int) -> None:
        super().__init__()
        edges, asked = self.flow.table("edges", PAIRS), self.flow.table("asked", PAIRS)
        found = asked.join(edges, [0], [0], columns=(0, 1, 3))
        if hops > 1:
            found = found.join(edges, [2], [0], columns=(0, 1, 4))
        if hops > 2:
            before = asked.join(edges, [1], [1], columns=(0, 1, 2))
            other = before.join(edges, [2], [1], columns=(0, 1, 3))
            found = found.join(other, [0, 1, 2], [0, 1, 2], columns=(0, 1, 2))
        self.outputs = [found.output("out")]

    def commands(self) -> dict[str, Callable[[str, int], Answer]]:
        """Change the edges; change the pairs."""
        return {"run": self.run, "query": self.query}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the edges."""
        return self.feed(["edges"], PAIRS, prefix, epochs)

    def query(self, prefix: str, epochs: int) -> Answer:
        """Changes of the pairs."""
        return self.feed(["asked"], PAIRS, prefix, epochs)


SESSIONS: dict[str, Callable[[], Session]] = {
    "keys": lambda: Arrangement(KEYS),
    "pairs": lambda: Arrangement(PAIRS),
    "texts": lambda: Arrangement(TEXTS),
    "count": lambda: Reduction(distinct=False),
    "distinct": lambda: Reduction(distinct=True),
    "join": Join,
    "install": Install,
    "hop1": lambda: Paths(1),
    "hop2": lambda: Paths(2),
    "path4": lambda: Paths(4),
    "shared": lambda: Queries(shared=True),
    "private": lambda: Queries(shared=False),
}
