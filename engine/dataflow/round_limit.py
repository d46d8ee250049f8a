"""Rows of a loop, with an error while its last round brings any: a loop that does not end is in error, and comes
back by itself.

Always: the loop's rounds are counted, so that the same changes give the same error whatever the machine; once what is left
over is gone, so is the error. Called by whoever builds plans: `until_it_ends`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.engine.dataflow.collection import COUNT_ROWS, Collection
from headrace.engine.dataflow.node import Node, fingerprint_of
from headrace.engine.dataflow.stateless import StatelessNode
from headrace.engine.operators.delta import QUIET, Delta, errors_at
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.operators.expressions.core.ir import Literal
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema

_ONE = Schema((Column("one", BOOLEAN, nullable=False),))
_COUNT = Schema((Column("count", BIGINT, nullable=False),))
_COUNTED = Schema((*_ONE.columns, *_COUNT.columns))


def until_it_ends(
    rows: Collection, left_over: Sequence[Collection], name: str, rounds: int, remedy: str, *, takes_back: bool = False
) -> Collection:
    """`rows`, and an error while `left_over`, the rows that the last round brings to each variable, have any; `takes_back`:
    where a round may take back what the one before brought, rows that come and rows that go count alike.

    The error names the query and the rounds, and says what to do.
    """
    if takes_back:
        left_over = [_changed(c) for c in left_over]
    brought, *others = (c.project([Literal(True, BOOLEAN)], _ONE) for c in left_over)
    # A group is there while it has rows: of a loop that ends nothing is kept, and nothing looked up.
    together = brought.concat(*others) if others else brought
    last = together.reduce([0], [COUNT_ROWS], _COUNTED)
    counted = last.join(rows.reduce([], [COUNT_ROWS], _COUNT), [], [])
    fingerprint = fingerprint_of("endless", counted.fingerprint, name, rounds, remedy)
    schema = Schema(rows.schema.columns)
    said = f'recursive query "{name}" did not end within {rounds} rounds'
    node = rows.flow.intern(fingerprint, lambda: RoundLimitNode(fingerprint, counted.node, schema, said, remedy))
    return rows.concat(Collection(rows.flow, node, schema))


def _changed(left_over: Collection) -> Collection:
    """Each row that comes or goes, once."""
    columns = Schema((*left_over.schema.columns, *_COUNT.columns))
    key = range(len(left_over.schema.columns))
    come, go = (c.reduce(key, [COUNT_ROWS], columns) for c in (left_over, left_over.negate()))
    return come.concat(go)


class RoundLimitNode(StatelessNode):
    """An error for each row (true, how many rows the last round brought, how many there are) of its input, and no rows.

    The input's errors stop here: they are those of the loop, which its rows carry.
    """

    label = "endless"

    def __init__(self, fingerprint: str, source: Node, schema: Schema, said: str, remedy: str) -> None:
        super().__init__(fingerprint, schema, [source])
        self._said = said
        self._remedy = remedy

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The errors, each with the time and the multiplicity of its row."""
        rows = deltas[0].rows
        if rows is None or not len(rows):
            return QUIET
        counts = zip(*(rows.rows.column(i).to_pylist() for i in (1, 2)), strict=True)
        texts = [
            f"{self._said}: {all_of} rows so far, {last} of them in the last; {self._remedy}" for last, all_of in counts
        ]
        return Delta(None, errors_at(pa.array(texts, MESSAGE), rows.times, rows.diffs))
