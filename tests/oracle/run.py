"""`make oracle QUERIES=n`: queries drawn from the whole grammar, put on trial, and an account of what became of them.

Always: a query that is answered differently is made smaller while it stays so, printed as SQL with its seed, and ends the
run with exit code 1; what is refused is counted by its reason. `SEED=s` begins at that batch.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import sqlglot
from sqlglot import exp

from sidecar.devstack.postgres import EmbeddedPostgres
from tests.conftest import FAST
from tests.oracle.grammar import Drawn
from tests.oracle.trial import Verdict, tried

BATCH = 40
TRANSACTIONS = 20
ROUNDS, AT_ONCE = 12, 120
"""So often a query that goes wrong is cut, and so many cuts are tried each time."""


def queries_of(seed: int, count: int = BATCH) -> list[str]:
    """The queries of a batch."""
    return [Drawn(random.Random(f"{seed}/{k}")).sql for k in range(count)]


def verdicts_of(postgres: EmbeddedPostgres, queries: list[str], seed: int) -> list[Verdict]:
    """What becomes of them, in a database of their own."""
    name = f"oracle_{seed}"
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as admin:
        admin.execute(f'drop database if exists "{name}" with (force)')
        admin.execute(f'create database "{name}"')
        try:
            with psycopg.connect(postgres.url(name), autocommit=True) as connection:
                return tried(connection, queries, seed, TRANSACTIONS)
        finally:
            admin.execute(f'drop database "{name}" with (force)')


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
    tree = sqlglot.parse_one(sql, dialect="postgres")
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


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    wrong: list[dict[str, object]] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder), settings=FAST) as postgres:
        for seed in range(chosen.seed, chosen.seed + -(-chosen.queries // BATCH)):
            for found in verdicts_of(postgres, queries_of(seed), seed):
                counts[found.kind] += 1
                if found.kind == "refused":
                    refused[reason(found.why)] += 1
                if found.kind in ("different", "taken"):

                    def differing(some: list[str], kind: str = found.kind, seed: int = seed) -> list[str]:
                        return [v.sql for v in verdicts_of(postgres, some, seed) if v.kind == kind]

                    least = smaller(found.sql, differing)
                    why = verdicts_of(postgres, [least], seed)[0].why
                    wrong.append({"seed": seed, "kind": found.kind, "sql": least, "why": why, "drawn": found.sql})
                    sys.stdout.write(f"seed {seed}: {found.kind}: {least}\n    {why}\n")
            sys.stdout.write(f"{sum(counts.values())} queries, {time.monotonic() - started:.0f} s: {dict(counts)}\n")
            sys.stdout.flush()
    for text, count in refused.most_common(40):
        sys.stdout.write(f"refused {count:6} {text}\n")
    folder_of = Path("build/oracle")
    folder_of.mkdir(parents=True, exist_ok=True)
    body = {"queries": sum(counts.values()), "seed": chosen.seed, "counts": counts, "refused": refused, "wrong": wrong}
    (folder_of / "counts.json").write_text(json.dumps(body, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
