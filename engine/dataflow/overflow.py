"""What a node says that has failed: a multiplicity does not fit, or a loop does not come to rest.

Called by nodes and outputs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.operators.delta import errors_at
from headrace.engine.operators.expressions.core.columns import MESSAGE

OVERFLOWED = (
    "a row's multiplicity does not fit 64 bits: the view is suspended until there are fewer copies of the row and "
    "Headrace is started again"
)
"""The error of a failed node: never retracted, for the node's state is lost."""


class Endless(DiffOverflow):
    """A loop that did not come to rest."""

    code = "rounds"

    def __init__(self, loop: str, most: int) -> None:
        super().__init__()
        self.error = (
            f"{loop} did not come to rest within {most} rounds: the view is suspended until its rule ends, or its limit "
            "is raised, and Headrace is started again"
        )


def overflowed(epoch: int, why: DiffOverflow | None = None) -> Updates:
    """The error update of a node that failed: a multiplicity that does not fit, or `why`."""
    message = why.error if isinstance(why, Endless) else OVERFLOWED
    return errors_at(pa.array([message], MESSAGE), np.array([epoch]), np.ones(1, np.int64))


__all__ = ["OVERFLOWED", "Endless", "overflowed"]
