"""The catalog: the tables that views may read, by full name (`schema.table`), with their schemas.

Invariant: names are as Postgres stores them. An unqualified name means the first schema of the search path that has it; the
path is `public` unless a session says otherwise. The sidecar makes it, from configuration or from decoded messages; the
binder asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.engine.schema import Column, DataType, Schema

DEFAULT_SCHEMA = "public"


@dataclass(frozen=True)
class Catalog:
    """Tables by full name, as in `{"public.orders": Schema(...)}`, the schemas that need not be written, and the types of the
    database's own by name; `composites`: the fields of those that are rows.
    """

    tables: Mapping[str, Schema] = field(default_factory=dict)
    search_path: tuple[str, ...] = (DEFAULT_SCHEMA,)
    types: Mapping[str, DataType] = field(default_factory=dict)
    composites: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)

    def find(self, schema: str | None, name: str) -> tuple[str, Schema] | None:
        """The full name and schema of a table, or None. Without a schema: by the search path."""
        for place in self.search_path if schema is None else (schema,):
            full = f"{place}.{name}"
            found = self.tables.get(full)
            if found is not None:
                return full, found
        return None

    def composite(self, schema: str | None, name: str) -> tuple[Column, ...] | None:
        """The fields of a row type, named by itself or by the table whose rows are of it; None for any other type."""
        found = self.composites.get(name) if schema is None else None
        table = self.find(schema, name)
        return found if found is not None or table is None else table[1].columns

    def spellings(self) -> tuple[str, ...]:
        """Every name by which a table can be written, for suggestions."""
        short = [t.removeprefix(f"{p}.") for p in self.search_path for t in self.tables if t.startswith(f"{p}.")]
        return (*self.tables, *short)
