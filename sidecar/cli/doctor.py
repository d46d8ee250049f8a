"""`headrace doctor`: prints what is wrong, why it matters, and the commands that mend it; leaves with 0, 1 or 2.

Always: `--json` has the same findings.
"""

from __future__ import annotations

import sys

from headrace.sidecar.cli import output
from headrace.sidecar.config.config import Settings
from headrace.sidecar.operations.doctor.examine import EVERY, Examination, examine
from headrace.sidecar.operations.doctor.findings import Finding, Subject, exit_code


def run_doctor(settings: Settings, asked: dict[str, bool], source_url: str | None, *, as_json: bool) -> None:
    """Look, print, and leave: 0 clean, 1 advice alone, 2 where something is refused."""
    subjects = tuple(Subject(name) for name, wanted in asked.items() if wanted) or EVERY
    found = examine(settings, Examination(subjects, source_url))
    body = {"code": exit_code(found), "subjects": [s.value for s in subjects], "findings": [f.as_json() for f in found]}
    output.emit(body, as_json=as_json)
    if not as_json:
        sys.stdout.write(
            "".join(map(_text, found)) or f"nothing is wrong with {', '.join(s.value for s in subjects)}\n"
        )
    sys.stdout.flush()
    raise SystemExit(exit_code(found))


def _text(found: Finding) -> str:
    lines = [f"{found.severity.value}  {found.subject.value}  {found.where}: {found.what}", f"    why: {found.why}"]
    if found.command:
        lines.append(f"    mend: {found.command}")
    return "\n".join(lines) + "\n"
