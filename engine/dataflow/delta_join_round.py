"""The nodes of a delta join in a loop: rows set out, are looked up in one arrangement after the other, and arrive.

Invariant: of each combination of rows the update that is last in the order of (step, round, place of its collection)
finds it. Rows go the whole way in the round in which they set out, so that the arrangements hold what comes before them
and nothing else. A row stands at the greatest epoch of all that it met, and its stamp says in which round it arrives,
which may be a later one. Single writer: the loop.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headrace.engine.dataflow.delta_join_nodes import LookUpNode
from headrace.engine.dataflow.node import Node, merged
from headrace.engine.operators.chunked_delta import Total, each, joined
from headrace.engine.operators.delta import Delta, take
from headrace.engine.operators.join import Probes, look_up_round
from headrace.engine.operators.rounds import stamped, stamps_of
from headrace.engine.schema import BIGINT, Column, Schema

STAMP = Column("stamp", BIGINT)
"""The first column of a row on its way: the round in which it arrives, in the bits of a time."""


class StampNode(Node):
    """A collection's changes with their stamps."""

    label = "set out"

    def __init__(self, fingerprint: str, source: Node) -> None:
        super().__init__(fingerprint, Schema((STAMP, *source.schema.columns)), [source])
        self._arrow: pa.Schema = self.schema.arrow

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The source's changes, which so far have met nothing."""
        assert self.scope is not None
        rows, errors = self.inputs[0].delta
        return merged(Delta(None if rows is None else stamped(rows, self.scope.now, self._arrow), errors))


class LookUpRoundNode(LookUpNode):
    """As `LookUpNode`, for rows with stamps; it is asked for nothing but the step's changes."""

    def _met(self, probes: Probes, since: int, *, strictly: bool) -> Delta:  # noqa: ARG002
        assert self.scope is not None
        return look_up_round(probes, self._arranged.index, self.scope.moment, self._joined, old=strictly)


class RoundDelayNode(Node):
    """The rows at the end of their way, in the rounds in which they arrive."""

    label = "arrive"
    takes_pieces = True

    def __init__(self, fingerprint: str, stream: Node) -> None:
        super().__init__(fingerprint, stream.schema, [stream])
        self._later: dict[int, Total] = {}
        """Rows of later rounds; empty between the loop's steps."""

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """What arrives in this round."""
        assert self.scope is not None
        now = self.scope.now
        waited = self._later.pop(now, None)
        found = each(self.inputs[0].delta, lambda delta: self._arriving(delta, now))
        return found if waited is None else joined([waited.all(), found])

    def _arriving(self, delta: Delta, now: int) -> Delta:
        """What of a delta arrives in the round `now`; the rest waits for its own."""
        rows = delta.rows
        if rows is None or not len(rows):
            return merged(delta)
        rounds, here = stamps_of(rows.struct), None
        for at in np.unique(rounds).tolist():
            chosen = np.flatnonzero(rounds == at)
            some = rows if len(chosen) == len(rows) else take(rows, chosen)
            if at == now:
                here = some
            else:
                self._later.setdefault(at, Total()).add(Delta(some, None))
        return merged(Delta(here, delta.errors))

    def is_eager(self, lower: int) -> bool:  # noqa: ARG002
        """Rows of this round may have set out in an earlier one."""
        return self.scope is not None and self.scope.now in self._later

    def later(self) -> Iterable[int]:
        """The rounds in which rows are still to arrive."""
        return self._later
