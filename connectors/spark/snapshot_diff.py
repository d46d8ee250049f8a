"""What changed between two snapshots of a dataset, by primary key.

Always: at most one change a key; a key that is NULL or repeats is refused before anything is published. Rows are
compared by their exact JSON image, so a changed set of columns changes every row. Called by `publish`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.types import encoded

SHOWN = 10
"""How many offending keys an error shows."""


def check_key(rows: DataFrame, table: str, key: Sequence[str]) -> None:
    """Raise PublishError when a key is NULL or stands twice, with the first of them."""
    quoted = ["`" + k.replace("`", "``") + "`" for k in key]
    null = F.lit(False)
    for name in quoted:
        null = null | F.col(name).isNull()
    bad = rows.where(null).limit(1).collect()
    if bad:
        missing = [k for k in key if bad[0][k] is None]
        raise PublishError(
            "a key is NULL", table=table, column=missing[0], row=_shown(bad[0].asDict(), key),
            hint="leave such rows out, or give them a value",
        )  # fmt: skip
    twice = (
        rows.groupBy(*[F.col(q) for q in quoted])
        .agg(F.count(F.lit(1)).alias("headrace_times"))
        .where(F.col("headrace_times") > 1)
        .orderBy(*[F.col(q) for q in quoted])
        .limit(SHOWN)
        .collect()
    )
    if twice:
        listed = "; ".join(f"{_shown(r.asDict(), key)} ({r['headrace_times']} times)" for r in twice)
        raise PublishError(
            f"a primary key stands in several rows: {listed}", table=table, key=",".join(key),
            hint="publish one row a key: nothing was written",
        )  # fmt: skip


def changes(present: DataFrame, previous: DataFrame | None, key: Sequence[str]) -> DataFrame:
    """The changes from `previous` to `present`: columns `key`, `after` (JSON texts, NULL for a delete) and `op`."""
    new = encoded(present, key)
    if previous is None:
        return new.withColumn("op", F.lit("c"))
    old = encoded(previous, key).withColumnsRenamed({"key": "old_key", "after": "old_after"})
    both = new.join(old, new["key"] == old["old_key"], "full_outer")
    op = F.when(F.col("old_key").isNull(), "c").when(F.col("key").isNull(), "d").otherwise("u")
    differs = F.col("old_key").isNull() | F.col("key").isNull() | (F.col("after") != F.col("old_after"))
    return both.where(differs).select(F.coalesce("key", "old_key").alias("key"), "after", op.alias("op"))


def _shown(row: dict[str, object], key: Sequence[str]) -> str:
    return ", ".join(f"{k}={row[k]}" for k in key)
