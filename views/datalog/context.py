"""What the parts of the binder share: the program, its place in its file, the names around it, and its mistakes so far.

Invariant: a mistake is told once, and at a character of the program. Made by `program`, one a binding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.views.datalog_text.syntax import Program
from headrace.views.errors import ViewError
from headrace.views.spec import ViewSpec
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import Source

SOUFFLE = {"number": "bigint", "unsigned": "bigint", "float": "double precision", "symbol": "text"}
"""Soufflé's types as SQL spells them."""


@dataclass
class Context:
    """`source` is of the whole program; `mistakes` by place and reason, written by the binder's parts."""

    program: Program
    spec: ViewSpec
    env: Environment
    source: Source
    mistakes: dict[tuple[object, str], ViewError] = field(default_factory=dict)

    def error(self, at: int, reason: str, hint: str = "", rule: str = "") -> ViewError:
        """A mistake at a character of the program."""
        line, column = self.spec.place(at)
        where = {"rule": rule} if rule else {}
        return ViewError(
            reason, hint=hint, view=self.spec.program, file=self.spec.file, line=line, column=column, **where
        )

    def tell(self, at: int, reason: str, hint: str = "", rule: str = "") -> None:
        """Keeps a mistake."""
        self.keep(self.error(at, reason, hint, rule))

    def keep(self, error: ViewError, rule: str = "") -> None:
        """Keeps a mistake, once; `rule`: in which it is."""
        if rule and "rule" not in error.where:
            error = ViewError(error.what, hint=error.hint, **{**error.where, "rule": rule})
        place = (error.where.get("line"), error.where.get("column"))
        self.mistakes.setdefault((place, error.what), error)
