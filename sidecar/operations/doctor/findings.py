"""What the doctor tells: findings, each with its place, its reason, and the command that mends it.

Invariant: a command is one line for a POSIX shell. `$SOURCE_URL` and `$SINK_URL` in it stand for the URL of the database
that the finding names, with the rights of its owner. Made by the checks of each subject, printed by the command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Subject(StrEnum):
    """What was looked at."""

    SOURCE = "source"
    KAFKA = "kafka"
    SINK = "sink"
    SELF = "self"


class Severity(StrEnum):
    """`REFUSED`: views are wrong, stale or not maintained because of it. `ADVICE`: they may become so, or cost too much."""

    ADVICE = "advice"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong. `check`: its name, the same in every version; `command`: mends it; "" where none can."""

    subject: Subject
    severity: Severity
    check: str
    where: str
    what: str
    why: str
    command: str = ""

    def as_json(self) -> dict[str, str]:
        """As `--json`, status and metrics have it."""
        return {
            "subject": self.subject.value,
            "severity": self.severity.value,
            "check": self.check,
            "where": self.where,
            "what": self.what,
            "why": self.why,
            "command": self.command,
        }


def refused(subject: Subject, check: str, where: str, what: str, why: str, command: str = "") -> Finding:
    """A finding that nothing may be built on."""
    return Finding(
        subject=subject, severity=Severity.REFUSED, check=check, where=where, what=what, why=why, command=command
    )


def advice(subject: Subject, check: str, where: str, what: str, why: str, command: str = "") -> Finding:
    """A finding that can wait."""
    return Finding(
        subject=subject, severity=Severity.ADVICE, check=check, where=where, what=what, why=why, command=command
    )


def exit_code(findings: Iterable[Finding]) -> int:
    """The exit code: 0 without findings, 1 with advice alone, 2 where a finding is refused."""
    found = {f.severity for f in findings}
    return 2 if Severity.REFUSED in found else 1 if found else 0


def psql(variable: str, *statements: str) -> str:
    """The command that has a database do these, each on its own.

    >>> psql("SOURCE_URL", "ALTER TABLE a SET LOGGED")
    'psql "$SOURCE_URL" -c \\'ALTER TABLE a SET LOGGED\\''
    """
    return f'psql "${variable}" ' + " ".join(f"-c {shlex.quote(statement)}" for statement in statements)


def identifier(name: str) -> str:
    """A name as SQL needs it, always quoted.

    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def table(name: str) -> str:
    """schema.table as SQL needs it."""
    schema, _, rest = name.partition(".")
    return f"{identifier(schema)}.{identifier(rest)}"
