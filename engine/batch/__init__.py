"""Updates at rest: loose (`Updates`, `Upserts`) and immutable, sorted, consolidated, described (`Batch`)."""
