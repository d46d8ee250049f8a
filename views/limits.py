"""Limits that a view declares: of its recursion, of its age, and of rounds that are meant to be counted.

Invariant: limits of recursion are counts, never seconds, so that the same changes give the same answer on any machine. Called
by `spec`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headrace.views.yaml_models import StrictModel

MOST_ROUNDS = 10_000
"""Rounds after which a recursive query is taken not to end, unless its view says otherwise."""

MOST_ROWS = 100_000_000
"""Rows with which a recursive query is taken not to end, unless its view says otherwise."""


class Limits(StrictModel):
    """What a view may take before it is in error."""

    rounds: int = Field(
        default=MOST_ROUNDS,
        ge=1,
        le=1 << 20,
        description="Rounds after which a recursive query is taken not to end; the view is in error until it does",
    )
    rows: int = Field(
        default=MOST_ROWS,
        ge=1,
        le=1 << 40,
        description="Rows of a recursive query, or relation, with more of which the view is in error until there are fewer",
    )


class FreshnessLimits(StrictModel):
    """How old a view may become in its sinks, in seconds since the commit that it reflects; without a number, no limit."""

    warn: float | None = Field(default=None, gt=0, description="Older than so many seconds it is late: a warning")
    error: float | None = Field(
        default=None, gt=0, description="Older than so many seconds it is stale: an error, and `/readyz` answers 503"
    )

    @model_validator(mode="after")
    def _in_order(self) -> FreshnessLimits:
        if self.warn is not None and self.error is not None and self.warn > self.error:
            raise ValueError("warn is more than error")
        return self


class Unstratified(StrictModel):
    """How relations that negate or aggregate themselves are made: in rounds from nothing, until nothing changes."""

    rounds: int = Field(default=MOST_ROUNDS, ge=1, le=1 << 20, description="The most rounds")
    at_limit: Literal["error", "return"] = Field(
        default="error",
        description="Where the last round still changes something: the views are in error, or that round is the answer",
    )
