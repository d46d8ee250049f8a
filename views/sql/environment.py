"""What names of tables mean in one view: tables of the catalogue, earlier views, and the CTEs in sight.

Always: a CTE hides a view or table of the same name; a name that is both view and table is refused unless qualified.
Made by `compile` for each view, handed down by `select`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from headrace.engine.schema import Schema
from headrace.views.catalog import Catalog
from headrace.views.plan import Plan
from headrace.views.sql.scope import Scope
from headrace.views.sql.subqueries.decorrelate.outer_columns import raised


class KnownView(Protocol):
    """What the binder needs of a view compiled earlier."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def schema(self) -> Schema:
        """Its columns, with its key."""

    @property
    def fingerprint(self) -> str:
        """The digest of its plan."""

    @property
    def failing(self) -> Plan | None:
        """What stands for it in a query that reads it, where it fails in itself whatever rows there are."""


@dataclass(frozen=True)
class Environment:
    """The names in sight of one query. `self_name`: the view being bound; `outer`: columns of the queries around it, of which
    there are `depth`. `ctes`: each with how many there were around it.
    """

    catalog: Catalog
    views: Mapping[str, KnownView] = field(default_factory=dict)
    self_name: str = ""
    ctes: Mapping[str, tuple[Plan, int]] = field(default_factory=dict)
    outer: Scope | None = None
    depth: int = 0

    def with_cte(self, name: str, plan: Plan) -> Environment:
        """The environment in which `name` means `plan`."""
        return replace(self, ctes={**self.ctes, name: (plan, self.depth)})

    def cte(self, name: str) -> Plan:
        """The plan of a CTE, as it is seen from here."""
        plan, depth = self.ctes[name]
        return raised(plan, self.depth - depth)

    def inside(self, outer: Scope) -> Environment:
        """The environment of a query that sees the columns of `outer` around it."""
        return replace(self, outer=outer, depth=self.depth + 1)

    def spellings(self) -> tuple[str, ...]:
        """Every name that a FROM clause could hold, for suggestions."""
        return (*self.ctes, *self.views, *self.catalog.spellings())
