"""Rows of files and changes of the stream make the table that the source has, wherever the files were read between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT
from headrace.engine.schema import BIGINT, TEXT, Column, Schema
from headrace.sidecar.operations.table_fill import Changes, lacked, without

KEYED = Schema.of([Column("id", BIGINT), Column("name", TEXT)], ["id"])
KEYLESS = Schema.of([Column("id", BIGINT), Column("name", TEXT)])
Row = tuple[int, str]
Op = tuple[int, Row]
"""A kind and its row."""


def batch(schema: Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [pa.array([r[k] for r in rows], c.type.arrow) for k, c in enumerate(schema.columns)]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def applied(state: Counter[Row], ops: Sequence[Op], *, keyed: bool) -> Counter[Row]:
    """The naive twin: what these make of a table."""
    state = Counter(state)
    for kind, row in ops:
        if kind == TRUNCATE:
            state.clear()
        elif keyed:
            for old in [r for r in state if r[0] == row[0]]:
                del state[old]
            if kind == UPSERT:
                state[row] = 1
        else:
            state[row] += 1 if kind == INSERT else -1
    return +state


def of_stream(schema: Schema, transactions: Sequence[tuple[int, Sequence[Op]]], cuts: set[int]) -> list[Changes]:
    """The changes as the job notes them, some transactions at a time."""
    found, held = [], list[tuple[int, Op]]()
    for number, (lsn, ops) in enumerate(transactions):
        held += [(lsn, op) for op in ops]
        if (number in cuts or number == len(transactions) - 1) and held:
            rows = batch(schema, [row for _, (_, row) in held])
            if schema.key is not None:
                rows = rows.select(list(schema.key))
            lsns, kinds = ([f(h) for h in held] for f in (lambda h: h[0], lambda h: h[1][0]))
            found.append(Changes(np.array(lsns, np.int64), np.array(kinds, np.uint8), rows))
            held = []
    return found


rows = st.tuples(st.integers(1, 6), st.sampled_from(["a", "b", "x\ty", ""]))
draws = st.lists(st.lists(st.tuples(st.integers(0, 9), rows), max_size=4), max_size=12)


def played(state: Counter[Row], drawn: Sequence[tuple[int, Row]], *, keyed: bool) -> list[Op]:
    """What a source can do of what was drawn, which it then has done."""
    ops: list[Op] = []
    for roll, row in drawn:
        kind = (
            TRUNCATE if roll == 9 else (DELETE if roll < 3 else UPSERT) if keyed else (RETRACT if roll < 3 else INSERT)
        )
        if kind in (DELETE, RETRACT):
            alive = sorted(r for r in state if r[0] == row[0])
            if not alive:
                continue
            row = alive[0]
        ops.append((kind, row))
        state = applied(state, ops[-1:], keyed=keyed)
    return ops


@given(draws, st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.sets(st.integers(0, 11)), st.booleans())
def test_the_table_is_as_the_source_has_it(
    drawn: list[list[tuple[int, Row]]], begins: int, read: int, given_at: int, cuts: set[int], keyed: bool
) -> None:
    """`begins`: from where the stream has the table; `read`: when the files were; `given_at`: until when they were merged."""
    schema = KEYED if keyed else KEYLESS
    states, transactions = [Counter[Row]()], list[tuple[int, list[Op]]]()
    for number, one in enumerate(drawn, 1):
        ops = played(states[-1], one, keyed=keyed)
        transactions.append((10 * number, ops))
        states.append(applied(states[-1], ops, keyed=keyed))
    begins, read, given_at = sorted(min(n, len(drawn)) for n in (begins, read, given_at))
    stream = transactions[begins:]
    table = Counter[Row]()
    for _, ops in stream:
        table = applied(table, ops, keyed=keyed) if keyed else Counter(_summed(table, ops))
    loaded = batch(schema, list(states[read].elements()))
    first = of_stream(schema, stream[: given_at - begins], cuts)
    found = without(
        schema, lacked(schema, loaded, 10 * read, first), of_stream(schema, stream[given_at - begins :], cuts)
    )
    assert found.whole
    lack = zip(found.kinds.tolist(), zip(*(c.to_pylist() for c in found.rows.columns), strict=True), strict=True)
    if keyed:
        assert applied(table, list(lack), keyed=True) == states[-1]
    else:
        ended = Counter(_summed(table, list(lack)))
        assert {r: n for r, n in ended.items() if n} == dict(states[-1])


def _summed(table: Counter[Row], ops: Sequence[Op]) -> dict[Row, int]:
    """A multiset may lack what is taken away: the rows that it began with are not there."""
    out = dict(table)
    for kind, row in ops:
        if kind == TRUNCATE:
            out.clear()
        else:
            out[row] = out.get(row, 0) + (1 if kind == INSERT else -1)
    return out


def test_a_value_that_was_not_sent_leaves_the_table_to_be_compared() -> None:
    """Its row is the stream's, which lacks the value."""
    keys = batch(KEYED, [(1, "")]).select([0])
    later = Changes(np.array([20]), np.array([UPSERT], np.uint8), keys, partial=True)
    found = lacked(KEYED, batch(KEYED, [(1, "a"), (2, "b")]), 10, [later])
    assert not found.whole
    assert found.rows.column(0).to_pylist() == [2]
    before = Changes(np.array([10]), np.array([UPSERT], np.uint8), keys, partial=True)
    assert lacked(KEYED, batch(KEYED, [(1, "a"), (2, "b")]), 10, [before]).whole


def test_keys_of_several_columns_are_told_apart() -> None:
    """Whatever stands in them: a tab, a backslash, an empty text, what COPY writes for NULL."""
    both = Schema.of([Column("id", BIGINT), Column("name", TEXT), Column("v", TEXT)], ["name", "id"])
    keys = [(1, "x\ty"), (1, "x"), (1, "x\\ty"), (2, "x\ty"), (1, ""), (1, "\\N")]
    columns = [
        pa.array([k for k, _ in keys]),
        pa.array([n for _, n in keys], TEXT.arrow),
        pa.array([None] * 6, TEXT.arrow),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=both.arrow)
    for gone in range(len(keys)):
        later = Changes(np.array([20]), np.array([DELETE], np.uint8), rows.slice(gone, 1).select([1, 0]))
        found = lacked(both, rows, 10, [later]).rows
        left = list(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))
        assert left == keys[:gone] + keys[gone + 1 :]
