"""`make tpch SF=0.1`: TPC-H's 22 views through loading and refreshes, beside the embedded Postgres.

Always: a line for each comparison, then a table of the views; exit code 1 if any was different. Writes
build/tpch/SF.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from headrace.engine.kernels import warm
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.conftest import FAST
from tests.oracle.test_views import connect
from tests.oracle.tpch.history import history
from tests.oracle.tpch.rows import tables
from tests.oracle.tpch.trial import Trial
from tests.views.tpch import QUERIES

SETTINGS = FAST | {
    "work_mem": "128MB",
    "jit": "off",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "autovacuum": "off",
}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--transactions", type=int, default=100, help="in which the tables are loaded")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--views", type=_span, default=QUERIES, help="which of the 22, as 12-22: at scale 1 half at a time"
    )
    chosen = parser.parse_args()
    warm()
    past = history(tables(chosen.scale), chosen.transactions, chosen.seed)
    total, done, spent, began = past.count(0, past.epochs), 0, 0.0, time.monotonic()
    _say(
        f"SF {chosen.scale:g}: {total:,} changes in {past.epochs} transactions, the last {past.epochs - past.loading} refreshes"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder), settings=SETTINGS) as postgres,
        connect(postgres, "tpch") as connection,
    ):
        trial = Trial(connection, past, chosen.seed, chosen.views)
        for frontier in trial.run():
            done += frontier.changes
            spent += frontier.seconds
            wrong = [name for name, kept in trial.kept.items() if kept.different]
            _say(
                f"epoch {frontier.epoch}: {frontier.changes:,} changes in {frontier.seconds:.2f} s of ours, "
                f"{100 * done / total:.0f} % after {time.monotonic() - began:.0f} s, different: {', '.join(wrong) or 'none'}"
            )
    rows = [
        {"view": name, "rows": sum(kept.rows.values()), "changes": kept.changes, "compared": kept.compared,
         "asked_s": round(kept.asked, 2), "different": kept.different}
        for name, kept in trial.kept.items()
    ]  # fmt: skip
    _say(f"{'view':5} {'rows':>8} {'changes':>10} {'compared':>9} {'Postgres s':>11}")
    for row in rows:
        verdict = "equal" if not row["different"] else f"DIFFERENT {row['different']}"
        _say(
            f"{row['view']:5} {row['rows']:>8,} {row['changes']:>10,} {row['compared']:>9} {row['asked_s']:>11}  {verdict}"
        )
    _say(f"{total:,} changes through {len(rows)} views in {spent:.1f} processor seconds: {total / spent:,.0f}/s")
    report = Path("build/tpch")
    report.mkdir(parents=True, exist_ok=True)
    body = {"scale": chosen.scale, "seed": chosen.seed, "changes": total, "seconds": round(spent, 2), "views": rows}
    some = "" if len(rows) == len(QUERIES) else f"-{'-'.join(map(str, (min(chosen.views), max(chosen.views))))}"
    (report / f"{chosen.scale:g}{some}.json").write_text(json.dumps(body, indent=1) + "\n")
    return int(any(kept.different for kept in trial.kept.values()))


def _span(text: str) -> dict[int, str]:
    low, high = map(int, text.split("-"))
    return {n: sql for n, sql in QUERIES.items() if low <= n <= high}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
