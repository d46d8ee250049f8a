"""Run the public suites that lie under a folder: `python -m tests.proof_suites FOLDER [--seed S] [--only TEXT]`.

The folder holds a clone of Soufflé, or its tests, and Postgres's `with.sql` from `src/test/regress/sql`, in whatever place.
Prints how many are equal, refused by name, and different, with each reason, and fails where any is different.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.proof_suites import postgres_with, souffle


def _suites(folder: Path, seed: int) -> Iterator[tuple[str, Iterator[souffle.Outcome]]]:
    for found in sorted(folder.rglob("tests/evaluation")):
        yield str(found), souffle.outcomes(found, seed)
    for found in sorted(folder.rglob("with.sql")):
        yield str(found), postgres_with.outcomes(found)


def main() -> None:
    """Run all that there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="tests whose name holds this")
    given = parser.parse_args()
    different = 0
    for suite, outcomes in _suites(given.folder, given.seed):
        counts: Counter[str] = Counter()
        for outcome in outcomes:
            if given.only in outcome.name:
                counts[outcome.how] += 1
                if outcome.how != "equal":
                    print(f"{outcome.how}: {outcome.name}: {outcome.why}", flush=True)
        print(f"{suite}: {', '.join(f'{counts[how]} {how}' for how in ('equal', 'refused', 'different'))}", flush=True)
        different += counts["different"]
    raise SystemExit(different > 0)


if __name__ == "__main__":
    main()
