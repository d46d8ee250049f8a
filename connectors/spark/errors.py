"""What the publisher refuses, and what Spark raises, as one named error of a few lines.

Spark's exceptions carry hundreds of lines of two languages' stacks: `of_spark` keeps the cause. See
`headrace.engine.errors` for the family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from headrace.engine.errors import HeadraceError

_LONGEST = 600
"""Characters of a cause that are shown."""

_CAUSED = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_OURS = ("PublishError", "ReadError", "LoadError")
"""Errors that are raised in tasks and say all by themselves."""
_PACKAGE = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z]\w*(?:Error|Exception|Failure)\b)")


class PublishError(HeadraceError):
    """A dataset that cannot be published exactly, or a topic or state folder that does not fit it; names the table."""

    code: ClassVar[str] = "publish"


def of_spark(error: BaseException, log: Path | None = None) -> PublishError:
    """The error that says in one line what Spark says in two hundred. `log`: where Spark writes."""
    return PublishError(f"Spark failed: {cause(str(error))}", log=log, hint="the log tells more" if log else "")


def cause(text: str) -> str:
    """The innermost cause that a Spark exception's text names: of a Python worker, else of the JVM, else its first line."""
    python = [m for m in _RAISED.finditer(text) if "Traceback (most recent call last)" in text[: m.start()]]
    if python:
        found = python[-1]
        said = found[2] if found[1] in _OURS else f"{found[1]}: {found[2]}"
    else:
        caused = _CAUSED.findall(text)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = caused[-1] if caused else (lines[0] if lines else "it gave no reason")
        if not caused and said.startswith("An error occurred while calling") and len(lines) > 1:
            said = lines[1].removeprefix(": ")
    said = _PACKAGE.sub("", said)
    return said if len(said) <= _LONGEST else said[:_LONGEST] + " …"


@contextmanager
def named_errors(log: Path | None = None) -> Iterator[None]:
    """Whatever Spark raises inside is raised as a PublishError. Errors of our own pass."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise of_spark(error, log) from error


@contextmanager
def spark_errors(what: str = "", *, hint: str = "", **where: object) -> Iterator[None]:
    """Whatever Spark raises inside is raised as a PublishError that says `what` failed, and why. Errors of our own pass."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = cause(str(error))
        raise PublishError(f"{what}: {said}" if what else said, hint=hint, **where) from error
