"""Transactions of any kind out of the same few facts, as the log spells them."""

from collections.abc import Mapping
from typing import Any

from headrace.connectors.commit_place import Lsn, Version
from headrace.sidecar.transactions.model import (
    EpochKind,
    IncrementalRows,
    Marker,
    Microbatch,
    Repair,
    Resync,
    SnapshotTransaction,
    SourceTransaction,
    SparkVersion,
    Transaction,
)
from headrace.sidecar.transactions.partial import RowRange


def transaction_of(
    kind: str, id_: int, lsn: int, commit_us: int = 1, slices: tuple[RowRange, ...] = (), *,
    errors: Mapping[str, Mapping[str, int]] | None = None, more: bool = False,
) -> Transaction:  # fmt: skip
    """A transaction of this kind; what its kind does not have is left out."""
    place = Lsn(lsn)
    told: dict[str, Any] = {"errors": errors or {}}
    match EpochKind(kind):
        case EpochKind.TRANSACTION:
            return SourceTransaction(place, commit_us, slices, id=id_, more=more, **told)
        case EpochKind.SNAPSHOT | EpochKind.LATER_SNAPSHOT as found:
            later = found is EpochKind.LATER_SNAPSHOT
            return SnapshotTransaction(place, commit_us, slices, later=later, more=more, **told)
        case EpochKind.VERSION:
            return SparkVersion(Version(lsn), commit_us, slices)
        case EpochKind.MICROBATCH:
            return Microbatch(place, commit_us, slices, id=id_, **told)
        case EpochKind.INCREMENTAL:
            return IncrementalRows(place, commit_us, slices)
        case EpochKind.REPAIR:
            return Repair(place, commit_us, slices, **told)
        case EpochKind.RESYNC:
            return Resync(place, commit_us, slices, table="t", **told)
        case EpochKind.MARKER:
            return Marker(place, commit_us)
