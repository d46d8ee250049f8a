"""Update(Bootstrap(E), Δ) = Bootstrap(E ± Δ): each row's round and count after every epoch of many random histories.

Updates are followed by a kernel alone, in columns, and dropped anywhere, so that Bootstrap goes on from them, by turns.

`python -m tests.engine.recursion.proof --histories N --seed S`: each program of the twin in turn, and those that keep copies;
prints how many histories were the same, and the first that is not.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import cycle

from headrace.engine.recursion.switching import Strategy
from tests.engine.recursion import test_copies, test_update
from tests.reference.elastic import PROGRAMS


def main() -> None:
    """Run histories until one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    in_columns = partial(test_update.different, columns=True)
    tried = [(way, name) for name in PROGRAMS for way in (test_update.different, in_columns)]
    tried += [(test_update.different_where_dropped, name) for name in PROGRAMS]
    tried += [(test_copies.different, n) for n in test_copies.WALKS]
    for seed, (different, name) in zip(range(given.seed, given.seed + given.histories), cycle(tried), strict=False):
        if different(name, seed, Strategy.UPDATE):
            raise SystemExit(f"{name}, seed {seed}: the states differ")
    print(f"{given.histories} histories of {test_update.EPOCHS} epochs, seeds from {given.seed}: 0 different")


if __name__ == "__main__":
    main()
