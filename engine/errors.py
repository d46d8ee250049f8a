"""The one family of errors: each says what happened, where, and what to do about it.

Every error a user can see is a `HeadraceError`. `where` holds named places (file, line, field, view, table, topic,
partition, offset …) in the order given; values are shown, so a secret must never be put there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

_PLACE = ("file", "line", "column")


class HeadraceError(Exception):
    """Base of all errors meant for people.

    `what` is a sentence without a full stop; `hint` is the remedy; `where` are named places, shown in order. A place in a
    file comes first, as `file:line:column:`, so that editors jump. `others`: further mistakes that were found at once.
    """

    code: ClassVar[str] = "error"
    others: Sequence[HeadraceError] = ()

    def __init__(self, what: str, *, hint: str = "", **where: object) -> None:
        self.what = what
        self.hint = hint
        self.where: dict[str, object] = {k: v for k, v in where.items() if v is not None}
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}" if self.place else self.sentence

    @property
    def place(self) -> str:
        """`file:line:column` where a line of a file is at fault, else nothing.

        >>> HeadraceError("no such column", file="v.yaml", line=3, column=7, view="v").place
        'v.yaml:3:7'
        """
        if "file" not in self.where or "line" not in self.where:
            return ""
        return ":".join(str(self.where[part]) for part in _PLACE if part in self.where)

    @property
    def sentence(self) -> str:
        """All but the place: what, the other places, the hint."""
        inside = _PLACE if self.place else ()
        places = ", ".join(f"{k}={v}" for k, v in self.where.items() if k not in inside)
        text = f"{self.what} ({places})" if places else self.what
        return f"{text}; {self.hint}" if self.hint else text

    def as_json(self) -> dict[str, object]:
        """The error as `--json` prints it: code, what, where (values as JSON scalars), hint."""
        where = {k: v if isinstance(v, (int, float, bool)) else str(v) for k, v in self.where.items()}
        return {"code": self.code, "what": self.what, "where": where, "hint": self.hint}


class TypeNotSupported(HeadraceError):
    """A Postgres type, or a way of encoding it, that cannot be kept exactly."""

    code = "type"


class InvariantBroken(HeadraceError):
    """Our own mistake: an object was about to be born that breaks a stated invariant."""

    code = "internal"
