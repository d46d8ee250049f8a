"""What other layouts of texts could save at merges: views that share the bytes, and dictionaries, against bytes that are copied.

Two batches of (u64, text), texts of 32 and of 200 bytes, few distinct or all, are merged by the engine as they are. Beside
it the engine merges what it would merge of the other layouts, a lane of a fixed width in the place of the texts: 16 bytes of
Arrow's string views, whose bytes stay where they are, or 4 bytes of a dictionary's codes; and Arrow does what comes with
these: bytes of rows that are gone are left out by copying those that are not (views, compacted), two dictionaries become one
and the codes of one of them are replaced (dictionary). So the other layouts are shown at their best: what kernels would
have to ask beside is not counted.
Batches are as they come, their rows in the order of arrival (fresh), or were merged before, as most that are merged, their
rows in the batch's order (merged before); in `replaced`, merged before too, the second takes half of the first one's rows
back and gives them other texts, of which only what is held is shown: rows of one key are told apart by their texts, which a
lane that stands for them does not have. Looking 10,000 keys up and putting their rows together is measured likewise.
Layouts take turns; figures are processor seconds, medians. Writes build/bench/texts.json. Run it as `make bench-texts`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.batch import Batch
from headrace.engine.batch.description import Description
from headrace.engine.batch.merger import merged
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Updates
from headrace.engine.kernels import warm
from headrace.engine.lattice import Frontier
from headrace.engine.schema import BIGINT, INTEGER, TEXT, Column, DataType, Kind, Schema
from headrace.engine.trace import Spine
from tests.bench.report import Row, publish, row

KINDS = ("fresh", "merged before", "replaced")
FEW = 1000
KEYS = 10_000
VIEW = DataType(Kind.NUMERIC, precision=38, scale=0)
"""What moves 16 bytes a row, as a view does."""

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Half(NamedTuple):
    """One of the two batches: keys, which text each row has, and the diffs."""

    keys: Ints
    texts: Ints
    diffs: Ints


def halves(rows: int, distinct: int, *, replaced: bool) -> list[Half]:
    """Two batches of `rows` updates each."""
    rng = np.random.default_rng(7)
    keys = rng.permutation(rows * 4)[: rows * 2]
    texts = np.arange(2 * rows) if distinct >= 2 * rows else rng.integers(0, distinct, 2 * rows)
    first = Half(keys[:rows], texts[:rows], np.ones(rows, np.int64))
    if not replaced:
        return [first, Half(keys[rows:], texts[rows:], np.ones(rows, np.int64))]
    half = rows // 2
    again = np.concatenate([keys[:half], keys[:half]])
    which = np.concatenate([texts[:half], texts[rows : rows + half]])
    return [first, Half(again, which, np.repeat([-1, 1], half))]


class Layout(NamedTuple):
    """How texts stand: the type of the lane that is merged, and what it holds of the numbers of texts."""

    kind: DataType
    lane: Callable[[Ints], pa.Array]


def batches(some: list[Half], layout: Layout, *, fresh: bool) -> list[Batch]:
    """The two batches in a layout, as they come or merged of two."""
    schema = Schema((Column("key", BIGINT), Column("text", layout.kind)))

    def sealed(half: Half, epoch: int) -> Batch:
        rows = pa.RecordBatch.from_arrays([pa.array(half.keys), layout.lane(half.texts)], schema=schema.arrow)
        updates = Updates(rows, np.full(len(half.keys), epoch), half.diffs)
        return Batch.seal(layout_of(schema, (0,)), updates, Description.epochs(epoch, epoch + 1, 0))

    made = []
    for epoch, half in enumerate(some):
        if fresh:
            made.append(sealed(half, epoch))
            continue
        middle = len(half.keys) // 2
        parts = [Half(*(lane[cut] for lane in half)) for cut in (slice(middle), slice(middle, None))]
        made.append(merged(*(sealed(part, 2 * epoch + k) for k, part in enumerate(parts)), Frontier.at(0)))
    return made


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


class Case:
    """Texts of one length, few distinct or all, in two batches."""

    def __init__(self, rows: int, length: int, distinct: int, kind: str) -> None:
        self.halves = halves(rows, distinct, replaced=kind == "replaced")
        wide = len(str(3 * rows))
        self.known = pa.array([f"{k:0{wide}}".ljust(length, "x") for k in range(2 * rows)], pa.large_string())

        def texts(which: Ints) -> pa.Array:
            return self.known.take(pa.array(which))

        def codes(which: Ints) -> pa.Array:
            return pa.array(which.astype(np.int32))

        self.layouts = {
            "copied": Layout(TEXT, texts),
            "views": Layout(VIEW, lambda which: pc.cast(pa.array(which), pa.decimal128(38, 0))),
            "dictionary": Layout(INTEGER, codes),
        }
        self.batches = {
            name: batches(self.halves, layout, fresh=kind == "fresh") for name, layout in self.layouts.items()
        }
        self.dictionaries = [self.known.take(pa.array(np.unique(half.texts))) for half in self.halves]
        places = [np.unique(half.texts, return_inverse=True)[1] for half in self.halves]
        self.codes = [pa.array(some.astype(np.int32)) for some in places]

    def merge(self, name: str) -> tuple[float, Batch]:
        """The merge in a layout, with what comes with it."""
        held: list[Any] = []
        taken = seconds(lambda: held.append(merged(*self.batches[name], Frontier.at(3))))
        if name == "dictionary":
            taken += seconds(self.united)
        return taken, held[0]

    def united(self) -> object:
        """The two dictionaries made one."""
        parts = [pa.DictionaryArray.from_arrays(*some) for some in zip(self.codes, self.dictionaries, strict=True)]
        return pa.chunked_array(parts).unify_dictionaries()

    def compacted(self) -> float:
        """The bytes of the rows that are left, copied out of those of both batches."""
        views = [pc.cast(batch.payload.column(1), pa.string_view()) for batch in self.batches["copied"]]
        left = merged(*self.batches["copied"], Frontier.at(3)).payload.num_rows
        whole = pa.chunked_array(views).combine_chunks()
        share = whole.slice(0, left)
        return seconds(lambda: pc.cast(share, pa.large_string()))

    def bytes(self, name: str, batch: Batch) -> float:
        """What a live row of the merged batch keeps, with the bytes of the texts."""
        rows = len(batch)
        held = float(batch.nbytes)
        if name == "views":
            held += sum(float(b.payload.column(1).buffers()[2].size) for b in self.batches["copied"])
        if name == "dictionary":
            held += float(pa.concat_arrays(self.dictionaries).unique().nbytes)
        return held / rows

    def look_up(self, name: str) -> float:
        """10,000 keys looked up in the merged batch, their rows put together as plain text."""
        spine = Spine(self.batches[name][0].layout)
        for batch in self.batches[name]:
            spine.insert(batch)
        chosen = np.random.default_rng(3).choice(self.halves[0].keys, KEYS)
        lane = pa.nulls(KEYS, spine.layout.arrow.field(1).type)
        keys = spine.layout.keys(pa.RecordBatch.from_arrays([pa.array(chosen), lane], schema=spine.layout.arrow))
        whole = self.known

        def work() -> None:
            rows = spine.gather(keys, 3).rows([1])
            if name == "dictionary":
                whole.take(rows.column(0))

        return statistics.median(seconds(work) for _ in range(7))


def measured(case: Case, title: str, rounds: int) -> list[Row]:
    """The rows of one case."""
    taken: dict[str, list[float]] = {name: [] for name in case.layouts}
    held: dict[str, float] = {}
    again: list[float] = []
    for _ in range(rounds):
        for name in case.layouts:
            lap, batch = case.merge(name)
            taken[name].append(lap)
            held[name] = case.bytes(name, batch)
        again.append(case.compacted())
    rows = [
        row(f"{title}: held as {name}", "B/row", held[name], peer="copied", peer_value=held["copied"])
        for name in ("views", "dictionary")
    ]
    if rounds == 1:
        return rows
    times = {name: statistics.median(laps) * 1000 for name, laps in taken.items()}
    times["views, compacted"] = times["views"] + statistics.median(again) * 1000
    copied = times.pop("copied")
    found = {name: case.look_up(name) * 1000 for name in ("copied", "dictionary")}
    for name, lap in times.items():
        rows.append(row(f"{title}: merged as {name}", "ms", lap, peer="copied", peer_value=copied))
    title = f"{title}: 10,000 keys in a dictionary"
    return [*rows, row(title, "ms", found["dictionary"], peer="copied", peer_value=found["copied"])]


def main() -> None:
    """Print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each batch")
    parser.add_argument("--rounds", type=int, default=5, help="how often each layout has its turn")
    chosen = parser.parse_args()
    warm()
    rows: list[Row] = []
    for length in (32, 200):
        for distinct in (FEW, 2 * chosen.rows):
            for kind in KINDS:
                title = f"{length} bytes, {'few' if distinct == FEW else 'all'} distinct, {kind}"
                rows += measured(
                    Case(chosen.rows, length, distinct, kind), title, 1 if kind == KINDS[-1] else chosen.rounds
                )
    publish("texts", rows, arguments="" if chosen.rows == 500_000 else f"--rows {chosen.rows}")


if __name__ == "__main__":
    main()
