# mypy: allow-untyped-defs
"""A time in one lane: the epoch in the low bits, the rounds of the scopes that iterate above it.

Always: at depth 0 a time is its epoch, so that a trace from outside is read inside of a scope as it lies there; the
order of the integers is a linear extension of the product order (paper: "Shared Arrangements", section 3.1). Of the
rounds the outer one has the lower bits; a scope that holds another keeps to `OUTER` of them. Called by the kernels that
advance times, and by the scopes of `headrace.engine.dataflow`.
"""

from __future__ import annotations

from headrace.engine.kernels.compiler import helper

EPOCH_BITS = 40
"""A thousand epochs a second fill them in 34 years."""

EPOCHS = (1 << EPOCH_BITS) - 1
"""The bits of the epoch; an epoch is less than this."""

ROUNDS = ~EPOCHS
"""The bits of the rounds."""

ROUND_BITS = 63 - EPOCH_BITS
"""Of a scope that holds no other."""

OUTER_BITS = 12
"""Of a scope that holds another; the inner one has the rest."""


@helper
def advanced(time, since, kept):
    """`time` with its epoch advanced to `since`, an epoch, and of its rounds those in the bits `kept`."""
    return max(time & EPOCHS, since) | (time & kept)
