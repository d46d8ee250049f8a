"""`python -m tests.docs_build [--check]`: writes every generated page; with --check names those that are stale and leaves with 1.

Always run from the repository's root, which is where the pages are. docs/sql.md comes from the tests' corpus, by a
command of its own, as the sidecar knows nothing of the tests.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.connectors.debezium.docs_page import document
from tests.docs_build import figures, reference, telemetry_pages
from tests.docs_build.contest_chart import contest_chart, systems
from tests.docs_build.markdown import between

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = ("<!-- numbers: written by `make docs` from build/bench/*.json -->", "<!-- numbers end -->")
OPTIONS = ("<!-- options: written by `make docs` -->", "<!-- options end -->")
SQL = "tests.views.docs"


def pages(root: Path) -> Mapping[str, str]:
    """Path → text of every page that is written here."""
    found = figures.read(root / "docs" / "figures")
    readme, cli = (root / "README.md").read_text(), (root / "docs" / "cli.md").read_text()
    return {
        "docs/configuration.md": reference.configuration(),
        **reference.schemas(),
        "docs/debezium.md": document(),
        "docs/metrics.md": telemetry_pages.metrics(),
        "docs/events.md": telemetry_pages.events(),
        "docs/cli.md": between(cli, *OPTIONS, reference.options()),
        "docs/benchmarks.md": figures.benchmarks(found),
        "docs/benchmarks.svg": figures.glance(found),
        **({"docs/contest.svg": contest_chart(found["freshness"])} if systems(found.get("freshness", ())) else {}),
        "docs/recovery.svg": figures.recovery(found.get("recovery", ())),
        **({"docs/series.svg": figures.series(found["datalog"])} if "datalog" in found else {}),
        "README.md": between(readme, *NUMBERS, figures.numbers(found)),
    }


def stale(root: Path) -> list[str]:
    """The pages that do not say what they should."""
    out = [p for p, text in pages(root).items() if not (root / p).exists() or (root / p).read_text() != text]
    return out + ([] if _sql(root, "--check") else ["docs/sql.md"])


def write(root: Path) -> list[str]:
    """Take the figures over and write every page; those that changed."""
    figures.take_over(root / "build" / "bench", root / "docs" / "figures")
    changed = []
    for path, text in pages(root).items():
        page = root / path
        if not page.exists() or page.read_text() != text:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text)
            changed.append(path)
    if not _sql(root, "--check"):
        _sql(root)
        changed.append("docs/sql.md")
    return changed


def _sql(root: Path, *arguments: str) -> bool:
    command = [sys.executable, "-m", SQL, *arguments]
    return subprocess.run(command, cwd=root, stderr=subprocess.DEVNULL, check=False).returncode == 0


def main(arguments: list[str]) -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs_build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; name the stale pages")
    if parser.parse_args(arguments).check:
        found = stale(ROOT)
        for page in found:
            sys.stdout.write(f"stale: {page}; run `make docs`\n")
        return 1 if found else 0
    for page in write(ROOT):
        sys.stdout.write(f"written: {page}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
