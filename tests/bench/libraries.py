"""What each library of the program takes of memory: loaded one after the other in a process that holds nothing else.

Always: it imports nothing heavy before it counts, and does without what the sidecar does without. Run as
`python -m tests.bench.libraries`; prints JSON, of each step of LIBRARIES its name, and anonymous bytes and those of mapped files
so far. Called by `bench_resident`.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from headrace.sidecar.process import bootstrap

LIBRARIES = (
    ("the interpreter", ()),
    ("numpy and pyarrow", ("numpy", "pyarrow", "pyarrow.compute")),
    ("numba", ("numba",)),
    ("Kafka's and Postgres's clients", ("confluent_kafka", "psycopg")),
    ("sqlglot, pydantic and SQLAlchemy", ("sqlglot", "pydantic", "sqlalchemy")),
    ("Headrace itself", ("headrace.sidecar.process.serve", "headrace.sidecar.cli.app")),
)
"""What is loaded, in this order."""


def resident(pid: int | str) -> tuple[float, float]:
    """Anonymous bytes of a process, and those of mapped files."""
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Rss"))
    held = {words[0]: 1024.0 * int(words[1]) for words in lines}
    return held["RssAnon:"], held["RssFile:"]


def main() -> None:
    """Load and print."""
    found = []
    bootstrap.forgo("pandas")  # as the sidecar does
    for name, modules in LIBRARIES:
        for module in modules:
            importlib.import_module(module)
        found.append((name, *resident("self")))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
