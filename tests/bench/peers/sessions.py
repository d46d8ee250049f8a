"""Our side's sessions: the same collections as the peer's, on the engine's own faces, with no path of their own.

Always: what a session does is what the peer's of the same name does. Called by `ours`, and by tests on tiny data.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.batch.updates import Int64s
from headrace.engine.dataflow import Collection, Output
from headrace.engine.dataflow.collection import COUNT_ROWS
from headrace.engine.lattice import Frontier
from headrace.engine.schema import BIGINT, TEXT, Column, Schema
from headrace.engine.trace import Spine
from tests.bench.peers import programs, recursion, tpch
from tests.bench.peers.columns import checksum, read
from tests.bench.peers.feeding import Flow, Session, Slice, Source, upserts_of, words_of
from tests.bench.peers.laps import Answer

KEY = Column("key", BIGINT)
KEYS = Schema((KEY,))
PAIRS = Schema((KEY, Column("value", BIGINT)))
TEXTS = Schema((KEY, Column("text", TEXT)))
BY_KEY = Schema(KEYS.columns, key=(0,))
ROWS = Schema(PAIRS.columns, key=(0,))
COUNTS = Schema((KEY, Column("count", BIGINT)))
QUERIES = 10


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
        source = Source(prefix, self._schema, self._upper)
        answer = Answer(rows=source.size)
        while source.waits:
            one = source.before(self._upper + epochs)
            answer.lap(lambda one=one: self._take(one, self._upper + epochs))  # type: ignore[misc]
        return answer

    def _take(self, one: Slice, upper: int) -> None:
        updates = Updates(one.rows(self._schema), one.epochs, one.diffs)
        self._spine.insert(Batch.seal(self._layout, updates, Description.epochs(self._upper, upper)))
        self._upper = upper
        self._spine.advance(Frontier.at(upper - 1))

    def content(self, prefix: str, number: int) -> Answer:
        """What the arrangement adds up to."""
        found = self._spine.snapshot(self._upper - 1)
        answer = Answer()
        answer.add(checksum(words_of(found.rows), found.diffs), len(found))
        return answer


class Reduction(Flow):
    """Counts or distinct rows of a keyless table."""

    def __init__(self, *, distinct: bool) -> None:
        super().__init__()
        keys = self.flow.table("keys", KEYS)
        self.outputs = [(keys.distinct() if distinct else keys.reduce([0], [COUNT_ROWS], COUNTS)).output("out")]

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the table."""
        return self.feed([(["keys"], KEYS, prefix)], epochs)


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
        return self.feed([(["rows"], ROWS, prefix)], epochs)

    def query(self, prefix: str, epochs: int) -> Answer:
        """Keys that are asked for."""
        return self.feed([(["asked"], BY_KEY, prefix)], epochs)


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
        return self.feed([(["rows"], ROWS, prefix)], epochs)

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
        one = Slice([pa.array(keys)], np.full(len(keys), flow.frontier), np.ones(len(keys), np.int64))
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
        return self.feed([(self._tables, ROWS, prefix)], epochs)

    def query(self, prefix: str, keys: int) -> Answer:
        """So many keys for each query, seen with the next run."""
        wanted = read(prefix, "key")
        assert wanted is not None
        for k in range(QUERIES):
            part = wanted[k * keys : (k + 1) * keys]
            one = Slice([pa.array(part)], np.full(len(part), self.flow.frontier), np.ones(len(part), np.int64))
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
        """Change the edges; change the pairs; change both."""
        return {"run": self.run, "query": self.query, "both": self.both}

    def run(self, prefix: str, epochs: int) -> Answer:
        """Changes of the edges."""
        return self.feed([(["edges"], PAIRS, prefix)], epochs)

    def query(self, prefix: str, epochs: int) -> Answer:
        """Changes of the pairs."""
        return self.feed([(["asked"], PAIRS, prefix)], epochs)

    def both(self, prefix: str, epochs: int) -> Answer:
        """Changes of edges and pairs."""
        return self.feed([(["edges"], PAIRS, f"{prefix}-edges"), (["asked"], PAIRS, f"{prefix}-asked")], epochs)


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
    **tpch.SESSIONS,
    **programs.SESSIONS,
    **recursion.SESSIONS,
}
