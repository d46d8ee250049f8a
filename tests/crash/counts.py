"""Counts of proofs: each run writes its own to build/proof/NAME.json; `python -m tests.crash.counts` takes them over into
docs/figures/proof and writes the block of last counts in docs/proofs.md.

Always: the page's figures come from these files alone; a proof that was not run here keeps its line. Called by `make proofs`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.docs_build.chart import Panel, chart

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "build" / "proof"
KEPT = ROOT / "docs" / "figures" / "proof"
PICTURE = ROOT / "docs" / "soak.svg"
PAGE = ROOT / "docs" / "proofs.md"
BEGIN, END = "<!-- counts: written by `make proofs` -->", "<!-- end of counts -->"
NAMES = ("sim", "sim-guards", "crash", "crash_spark", "fence", "soak", "mutate", "fuzz", "oracle", "oracle_recursive", "datalog",
         "datalog_postgres")  # fmt: skip
COMMANDS = {
    "crash_spark": "make crash HOST=spark",
    "oracle_recursive": "make oracle GRAMMAR=recursive",
    "datalog_postgres": "make datalog",
    "datalog": "python -m tests.oracle.datalog",
}
"""The commands that are not called like their proof."""


def write(name: str, facts: Mapping[str, Any]) -> None:
    """Keep what a run of the proof `name` counted."""
    PROOFS.mkdir(parents=True, exist_ok=True)
    body = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **facts}
    arriving = PROOFS / f"{name}.json.new"
    arriving.write_text(json.dumps(body, indent=1) + "\n")
    os.replace(arriving, PROOFS / f"{name}.json")


def take_over() -> list[str]:
    """Copy the reports of runs here into the documentation; their names."""
    KEPT.mkdir(parents=True, exist_ok=True)
    found = [name for name in NAMES if (PROOFS / f"{name}.json").exists()]
    for name in found:
        (KEPT / f"{name}.json").write_text((PROOFS / f"{name}.json").read_text())
    return found


def block() -> str:
    """A line a proof, of the last run that was taken over."""
    lines = ["| command | when | counts |", "| --- | --- | --- |"]
    for name in NAMES:
        command = COMMANDS.get(name, f"make {name}")
        path = KEPT / f"{name}.json"
        if not path.exists():
            lines.append(f"| `{command}` | not run yet | |")
            continue
        facts = json.loads(path.read_text())
        told = ", ".join(f"{k.replace('_', ' ')} {v:,}" for k, v in facts.items() if isinstance(v, int))
        lines.append(f"| `{command}` | {facts['at'][:10]} | {told} |")
    return "\n".join(lines)


def picture(samples: Sequence[Mapping[str, float]]) -> str:
    """What a soak sampled, over minutes."""
    told = {
        "memory_mib": ("Memory, mapped files apart", "MiB"),
        "files": ("Open files", ""),
        "threads": ("Threads", ""),
    }
    return chart([
        Panel(title, "minutes", unit, sorted((s["at"] / 60, s[name]) for s in samples))
        for name, (title, unit) in told.items()
    ])  # fmt: skip


def page(text: str) -> str:
    """The page with its block written anew."""
    head, _, rest = text.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n\n{block()}\n\n{END}{tail}"


def main() -> None:
    """Entry point."""
    found = take_over()
    if "soak" in found:
        PICTURE.write_text(picture(json.loads((KEPT / "soak.json").read_text())["samples"]))
    PAGE.write_text(page(PAGE.read_text()))
    print(f"taken over: {', '.join(found) or 'nothing'}")


if __name__ == "__main__":
    main()
