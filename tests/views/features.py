"""What an entry of the corpus of views is: a feature shown by a view, or one that is refused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Supported:
    """A feature, shown by a view.

    `fails`: some rows may make it fail. `fenced`: the same view for Postgres, held to SQL's order of clauses, where its
    planner would ask what may fail of rows that a join leaves out.
    """

    feature: str
    name: str
    sql: str
    fails: bool = False
    fenced: str = ""


@dataclass(frozen=True)
class Refused:
    """A feature that is refused, shown by a query; `at` is the text at which the refusal points."""

    feature: str
    sql: str
    reason: str
    at: str


def supported(*rows: tuple[str, str, str]) -> tuple[Supported, ...]:
    """Features that cannot fail: (feature, name, SQL)."""
    return tuple(Supported(feature, name, " ".join(sql.split())) for feature, name, sql in rows)
