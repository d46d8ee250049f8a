"""Which times a batch holds, and since when it may be asked."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import MINIMUM, Frontier


@dataclass(frozen=True)
class Description:
    """A batch holds exactly the updates at times ≥ `lower` and not ≥ `upper`; their times were advanced to `since`.

    Answers drawn from it are faithful at times ≥ `since` only.
    """

    lower: Frontier
    upper: Frontier
    since: Frontier = MINIMUM

    def __post_init__(self) -> None:
        if not self.lower.before(self.upper):
            raise InvariantBroken("a batch ends before it begins", lower=self.lower, upper=self.upper)

    @classmethod
    def epochs(cls, lower: int, upper: int, since: int = 0) -> Description:
        """The description of the epochs lower ≤ epoch < upper."""
        return cls(Frontier.at(lower), Frontier.at(upper), Frontier.at(since))

    def followed_by(self, later: Description) -> Description:
        """The description of the merge of this batch and the one right after it. Raises InvariantBroken for a gap."""
        if self.upper != later.lower:
            raise InvariantBroken("batches do not meet", upper=self.upper, lower=later.lower)
        return Description(self.lower, later.upper, self.since.join(later.since))
