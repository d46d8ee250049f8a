"""The tables that views may read: full name (`schema.table`) to schema.

Always: names are as Postgres stores them (folded where unquoted). An unqualified name means the schema `public`.
Called by the binder; made by the sidecar from configuration or decoded message schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.schema import Schema

DEFAULT_SCHEMA = "public"


@dataclass(frozen=True)
class Catalog:
    """Tables by full name, as in `{"public.orders": Schema(...)}`."""

    tables: Mapping[str, Schema] = field(default_factory=dict)

    def find(self, schema: str | None, name: str) -> tuple[str, Schema] | None:
        """The full name and schema of a table, or None. Without a schema: `public`."""
        full = f"{schema or DEFAULT_SCHEMA}.{name}"
        found = self.tables.get(full)
        return None if found is None else (full, found)

    def spellings(self) -> tuple[str, ...]:
        """Every name by which a table can be written, for suggestions."""
        short = [t.removeprefix(f"{DEFAULT_SCHEMA}.") for t in self.tables if t.startswith(f"{DEFAULT_SCHEMA}.")]
        return (*self.tables, *short)
