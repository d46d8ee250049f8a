"""`python -m tests.docs_build.words`: names our own coinages in what people read, long openings, long subjects.

Always: a coinage is a word or a phrase that nobody outside can search for, with the field's word beside it; ordinary English is
not among them. Names in code are not looked at: only what is read. Called by `make check` and by a test.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "views", "connectors", "sidecar", "headrace", "examples")
KEPT_AS_WRITTEN = ("docs/development-log.md", "docs/proofs.md")
"""Logs of their day: they say what was said then."""
COINAGES = {
    r"(?:stand|stands|standing|stood) still": "suspended (a table, a view), hangs (a process), does not change",
    r"hangs? on (?:a|an|the|what|which|tables|it|its)": "depends on",
    r"lulls?": "snapshot barrier",
    r"errands?": "background job",
    r"deal(?:t|s|ing)? (?:out|anew)": "sharded, partitioned",
    r"(?:and|or) (?:its|their) kin": "and similar ones",
    r"mended tables?": "repaired table",
    r"(?:each|a|one|first|next|last|two) beats?": "heartbeat",
    r"legs? of a walk": "stage of a latency trace",
}
"""What is refused → the field's words. At most forty."""
SENTENCES = 5
"""So many a module's opening has at most."""
SUBJECT = 72
SINCE = "2026-11-25T22:24:00+00:00"
"""From then on subjects are kept short; history is not rewritten."""


def texts(root: Path) -> Iterator[tuple[str, int, str]]:
    """File, line and text of everything that people read."""
    pages = [
        root / "README.md",
        root / "CONTRIBUTING.md",
        root / "CHANGELOG.md",
        *sorted((root / "docs").rglob("*.md")),
    ]
    for page in pages:
        name = str(page.relative_to(root))
        if name not in KEPT_AS_WRITTEN:
            yield from ((name, at, line) for at, line in enumerate(page.read_text().splitlines(), 1))
    for package in PACKAGES:
        for module in sorted((root / package).rglob("*.py")):
            name = str(module.relative_to(root))
            for node in ast.walk(ast.parse(module.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                    yield from ((name, node.lineno + at, line) for at, line in enumerate(node.value.splitlines()))


def found(root: Path) -> list[str]:
    """A line for each coinage: where it stands, and what to say instead."""
    looked = re.compile("|".join(rf"(\b(?:{coinage})\b)" for coinage in COINAGES), re.IGNORECASE)
    instead = list(COINAGES.values())
    out = set()
    for name, line, text in texts(root):
        for match in looked.finditer(text):
            out.add(f"{name}:{line}: `{match[0]}`: say {instead[(match.lastindex or 1) - 1]}")
    return sorted(out)


def long_openings(root: Path) -> list[str]:
    """The modules whose openings have too many sentences. What stands in backticks ends none."""
    out = []
    for package in PACKAGES:
        for module in sorted((root / package).rglob("*.py")):
            opening = re.sub(r"`[^`]*`", "x", ast.get_docstring(ast.parse(module.read_text())) or "")
            count = len(re.findall(r"[.!?](?=\s|$)", opening))
            if count > SENTENCES:
                out.append(f"{module.relative_to(root)}:1: its opening has {count} sentences, at most {SENTENCES}")
    return out


def long_subjects(root: Path) -> list[str]:
    """Subjects of the last commits that are too long; none where there is no history, as in a source archive."""
    command = ["git", "log", "--no-merges", f"--since={SINCE}", "--format=%h %s"]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    lines = [line.partition(" ") for line in told.stdout.splitlines()]
    return [
        f"{commit}: subject of {len(s)} characters, at most {SUBJECT}: {s}"
        for commit, _, s in lines
        if len(s) > SUBJECT
    ]


def main() -> int:
    """Print what was found; 1 where there is any."""
    told = [*found(ROOT), *long_openings(ROOT), *long_subjects(ROOT)]
    sys.stdout.writelines(f"{line}\n" for line in told)
    return 1 if told else 0


if __name__ == "__main__":
    raise SystemExit(main())
