"""Source batches, in one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.connectors.source import Positions
from headrace.sidecar.epochs.source_batch import SourceBatch
from headrace.sidecar.transactions.model import Transaction


def source_batch(source: str, transactions: Sequence[Transaction], positions: Positions, **more: Any) -> SourceBatch:
    """What a source completed, and its next offsets."""
    return SourceBatch(source=source, transactions=transactions, positions=positions, **more)
