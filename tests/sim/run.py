"""`python -m tests.sim.run --seeds N [--seed S]`: the simulator over N seeds from S on.

Always: hashes are seeded too (the process begins again with PYTHONHASHSEED=0), so that a seed plays the same life anywhere; the
first seed that fails is printed with the command that plays it again, and ends the run with 1. Called by make.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
import traceback
from collections import Counter

from tests.crash import counts
from tests.sim.world import World


def play_in(world: World, totals: Counter[str]) -> BaseException | None:
    """What was wrong in a life, or None."""
    try:
        world.live()
    except Exception as wrong:
        return wrong
    finally:
        totals.update(world.counts)
        totals["frontiers"] += world.judge.frontiers
        totals["within"] += world.judge.within
    return None


def main() -> None:
    """Entry point."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        here = [sys.executable, "-m", "tests.sim.run", *sys.argv[1:]]
        os.execve(sys.executable, here, {**os.environ, "PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60, help="of the scheduler, a life")
    parser.add_argument("--trace", action="store_true", help="print a digest of each life")
    parser.add_argument("--keep", action="store_true", help="keep the counts for `make proofs`")
    parser.add_argument("--go-on", action="store_true", help="after a failure too")
    options = parser.parse_args()
    totals: Counter[str] = Counter()
    started, failed, played = time.monotonic(), [], 0
    for seed in range(options.seed, options.seed + options.seeds):
        played += 1
        world = World(seed, options.steps)
        wrong = play_in(world, totals)
        if options.trace:
            print(f"trace {seed} {hashlib.blake2b(repr(world.trace).encode(), digest_size=8).hexdigest()}")
        if wrong is not None:
            failed.append(seed)
            traceback.print_exception(wrong)
            print(
                f"seed {seed} fails: {type(wrong).__name__}: {str(wrong)[:1000]}\n  make sim SEEDS=1 SEED={seed}",
                flush=True,
            )
            if not options.go_on:
                break
    facts = {"seed": options.seed, "seeds": played, "failed": len(failed), **totals}
    facts["seconds"] = round(time.monotonic() - started)
    print(", ".join(f"{name} {value:,}" for name, value in facts.items()))
    if failed:
        print(f"failed: {failed}")
    if options.keep:
        counts.write("sim", facts)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
