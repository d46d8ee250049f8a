"""`make oracle QUERIES=n`: queries drawn from the whole grammar, put on trial, and an account of what became of them.

Always: a query that is answered differently is made smaller while it stays so, printed as SQL with its seed, and ends the
run with exit code 1; what is refused is counted by its reason. `SEED=s` begins at that batch. Each batch that is done is
a line of build/oracle/batches.jsonl, with the commit that it was run on; `--go-on` leaves out those that have one, and the
sums that `make proofs` takes over are of the lines of this run's seeds alone. `GRAMMAR=recursive`: queries
with WITH RECURSIVE, whose batches have a file of their own.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.conftest import FAST
from tests.crash import counts
from tests.oracle import recursive_cases
from tests.oracle.grammar import Drawn
from tests.oracle.pipelined import Server
from tests.oracle.trial import Verdict, tried

BATCHES = Path("build/oracle/batches.jsonl")
WRONG = ("different", "taken", "broken")
BATCH = 40
TRANSACTIONS = 20
ROUNDS, AT_ONCE = 12, 120
"""So often a query that goes wrong is cut, and so many cuts are tried each time."""


def queries_of(seed: int, count: int = BATCH, grammar: str = "whole") -> list[str]:
    """The queries of a batch."""
    if grammar == "recursive":
        return recursive_cases.queries_of(seed, count)
    return [Drawn(random.Random(f"{seed}/{k}")).sql for k in range(count)]


def verdicts_of(server: Server, queries: Sequence[str], seed: int) -> list[Verdict]:
    """What becomes of them; where something is raised, each is tried alone."""
    try:
        return tried(server, queries, seed, TRANSACTIONS)
    except ConnectionError:
        raise
    except Exception as error:
        if len(queries) == 1:
            return [Verdict(queries[0], "broken", f"{type(error).__name__}: {error}")]
        alone = [v for sql in queries for v in verdicts_of(server, [sql], seed)]
        if all(v.kind != "broken" for v in alone):
            raise
        return alone


def smaller(sql: str, differing: Callable[[list[str]], list[str]]) -> str:
    """A query that is as small as cutting it makes it. `differing`: those of some queries that go wrong as it does."""
    for _ in range(ROUNDS):
        shorter = sorted({c for c in _cuts(sql) if len(c) < len(sql)}, key=len)[:AT_ONCE]
        wrong = differing(shorter) if shorter else []
        if not wrong:
            return sql
        sql = min(wrong, key=len)
    return sql


def _cuts(sql: str) -> Iterator[str]:
    """The query with one part less, or with one expression replaced by a part of it."""
    try:
        tree = sqlglot.parse_one(sql, dialect="postgres")
    except ParseError:
        return  # its own Postgres does not read all that ours does
    count = sum(1 for _ in tree.walk())
    for k in range(count):
        for way in range(4):
            copy = tree.copy()
            node = list(copy.walk())[k]
            if _cut(node, way):
                yield copy.sql("postgres")


def _cut(node: exp.Expression, way: int) -> bool:
    parts = [p for p in node.iter_expressions() if isinstance(p, exp.Expression)]
    if isinstance(
        node, exp.Where | exp.Having | exp.Order | exp.Limit | exp.Offset | exp.Join | exp.Distinct | exp.Filter
    ):
        if way or node.parent is None:
            return False
        node.replace(node.this) if isinstance(node, exp.Filter) else node.pop()
        return True
    if isinstance(node, exp.Select) and len(node.expressions) > 1 and way < len(node.expressions):
        node.expressions[way].pop()
        return True
    if isinstance(node, exp.Condition) and node.parent is not None and way < len(parts):
        node.replace(parts[way])
        return True
    return False


def reason(text: str) -> str:
    """A refusal without what is this query's own."""
    return re.sub(r'"[^"]*"|\d+|\b[twc]\d+\b', "…", text)


_servers: list[Server] = []
"""The session of this process, where it is a worker."""


_grammars: list[str] = []
"""What this process draws from, where it is a worker."""


def _serve(url: str, grammar: str) -> None:
    # whoever ends the run ends it through the parent, which awaits the batches that are under way
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    _servers.append(Server(url))
    _grammars.append(grammar)


def _tidy() -> None:
    """Throw a batch away as a whole: its plans and nodes, which refer to each other, would be walked again and again, and
    so would all that stays, which is looked at no more."""
    gc.collect()
    gc.freeze()


def batch(seed: int) -> dict[str, Any]:
    """What became of a batch's queries, and those that are answered differently made small."""
    started = time.monotonic()
    [server] = _servers
    found = verdicts_of(server, queries_of(seed, grammar=_grammars[-1]), seed)
    _tidy()
    return {
        "seed": seed,
        "queries": len(found),
        "counts": Counter(v.kind for v in found),
        "refused": Counter(reason(v.why) for v in found if v.kind == "refused"),
        "wrong": [_made_small(server, v, seed) for v in found if v.kind in WRONG],
        "seconds": round(time.monotonic() - started, 2),
    }


def _made_small(server: Server, found: Verdict, seed: int) -> dict[str, Any]:
    def differing(some: list[str]) -> list[str]:
        return [v.sql for v in verdicts_of(server, some, seed) if v.kind == found.kind]

    least = smaller(found.sql, differing)
    return {"kind": found.kind, "sql": least, "why": verdicts_of(server, [least], seed)[0].why, "drawn": found.sql}


def batches(seeds: Sequence[int], processes: int, grammar: str = "whole") -> Iterator[dict[str, Any]]:
    """The batches as they get done, on one Postgres of their own."""
    spawning = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder), settings=FAST) as postgres,
        ProcessPoolExecutor(processes, spawning, _serve, (postgres.url(), grammar)) as pool,
    ):
        todo = [pool.submit(batch, seed) for seed in seeds]
        try:
            for done in as_completed(todo):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def summed(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What the batches come to together."""
    sums: dict[str, Any] = {"queries": 0, "counts": Counter(), "refused": Counter(), "wrong": [], "commits": []}
    for line in lines:
        sums["queries"] += line["queries"]
        sums["counts"] += Counter(line["counts"])
        sums["refused"] += Counter(line["refused"])
        sums["wrong"] += [{"seed": line["seed"], **w} for w in line["wrong"]]
        sums["commits"] = sorted({*sums["commits"], line["commit"]})
    return sums


def kept(seeds: Sequence[int], grammar: str = "whole") -> dict[int, dict[str, Any]]:
    """The last lines of these batches, by seed."""
    file = file_of(grammar)
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else iter(())
    return {line["seed"]: line for line in lines if line["seed"] in seeds}


def file_of(grammar: str) -> Path:
    """Where the batches of a grammar are written down."""
    return BATCHES if grammar == "whole" else BATCHES.with_stem(f"{grammar}-batches")


def commit() -> str:
    """The commit that is run; with a plus if files were changed since."""
    said = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"], capture_output=True, text=True
    )
    return said.stdout.strip() or "unknown"


def report(seeds: Sequence[int], lines: Sequence[dict[str, Any]], seconds: float, grammar: str = "whole") -> int:
    """Write the sums of a run, and what was refused; its exit code."""
    sums = summed(lines)
    for text, count in sums["refused"].most_common(40):
        sys.stdout.write(f"refused {count:6} {text}\n")
    (BATCHES.parent / "counts.json").write_text(json.dumps({"seed": seeds[0], **sums}, indent=1) + "\n")
    facts = {kind: sums["counts"][kind] for kind in ("equal", "refused", "invalid", *WRONG)}
    told = {"seed": seeds[0], "batches": len(lines), "queries": sums["queries"], "transactions": TRANSACTIONS, **facts}
    counts.write(
        "oracle" if grammar == "whole" else f"oracle_{grammar}",
        {**told, "seconds": round(seconds), "commits": sums["commits"]},
    )
    sys.stdout.write(f"{told}, commits {sums['commits']}\n")
    return 1 if sums["wrong"] else 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--go-on", action="store_true", help="leave out the batches that are done")
    parser.add_argument("--grammar", choices=("whole", "recursive"), default="whole")
    chosen = parser.parse_args()
    seeds = range(chosen.seed, chosen.seed + -(-chosen.queries // BATCH))
    BATCHES.parent.mkdir(parents=True, exist_ok=True)
    done = kept(seeds, chosen.grammar) if chosen.go_on else {}
    started, at = time.monotonic(), commit()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with file_of(chosen.grammar).open("a") as file:
            for line in batches([s for s in seeds if s not in done], chosen.processes, chosen.grammar):
                line["commit"] = at
                done[line["seed"]] = line
                file.write(json.dumps(line) + "\n")
                file.flush()
                for wrong in line["wrong"]:
                    sys.stdout.write(f"seed {line['seed']}: {wrong['kind']}: {wrong['sql']}\n    {wrong['why']}\n")
                if len(done) % 10 == 0:
                    sums = summed(done.values())
                    sys.stdout.write(
                        f"{sums['queries']} queries, {time.monotonic() - started:.0f} s: {dict(sums['counts'])}\n"
                    )
                sys.stdout.flush()
    finally:
        code = report(
            seeds, [done[s] for s in sorted(done)], sum(line["seconds"] for line in done.values()), chosen.grammar
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
