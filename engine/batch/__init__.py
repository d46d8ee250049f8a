"""Updates at rest: loose (`Updates`, `Upserts`) and immutable, sorted, consolidated, described (`Batch`)."""

from engine.batch.batch import Batch, DiffOverflow
from engine.batch.consolidation import consolidate
from engine.batch.description import Description
from engine.batch.keys import Keys, fingerprint, key_lanes
from engine.batch.layout import Layout
from engine.batch.updates import Updates, Upserts

__all__ = [
    "Batch",
    "Description",
    "DiffOverflow",
    "Keys",
    "Layout",
    "Updates",
    "Upserts",
    "consolidate",
    "fingerprint",
    "key_lanes",
]
