"""What one source completed in one turn of the loop: the value that the intake gives and the reclock binds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.connectors.source import Positions
from headrace.sidecar.transactions.model import Transaction
from headrace.sidecar.transactions.partial import Place


@dataclass(frozen=True, kw_only=True)
class SourceBatch:
    """Whole transactions of `source`, in their order, perhaps none. `positions`: its next offsets once all of them are in.

    `resume_positions`: the same, but where suspended tables must be read again, which a binding says; None: where no table is.
    `passed`: records that were passed over, of these transactions and perhaps of later ones.
    """

    source: str
    transactions: Sequence[Transaction]
    positions: Positions
    resume_positions: Positions | None = None
    passed: frozenset[Place] = frozenset()
