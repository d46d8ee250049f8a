"""Updates at rest: loose (`Updates`, `Upserts`) and immutable, sorted, consolidated, described (`Batch`)."""

from headrace.engine.batch.batch import Batch, DiffOverflow
from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.description import Description
from headrace.engine.batch.keys import Keys, fingerprint, key_lanes
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Updates, Upserts

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
