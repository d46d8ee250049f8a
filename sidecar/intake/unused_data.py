"""Unused data: tables that nobody declared or reads, and columns that cannot be decoded.

Invariant: it only reports; nothing here decides what is read. Wiring calls it for `headrace status`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.connectors.debezium.settings import HEARTBEAT_TABLE
from headrace.sidecar.config.config import KafkaSinkConfig, Settings
from headrace.sidecar.config.sources import SourceConfig

UNDECLARED = "its topic is there, but headrace.yaml does not declare it"
UNUSED = "no view reads it"


@dataclass(frozen=True)
class Unread:
    """A table, or a column ("schema.table.column"), and why it is in no view."""

    what: str
    why: str


def unread(
    settings: Settings,
    source: SourceConfig,
    topics: Iterable[str],
    tables: Collection[str],
    used: Collection[str],
    left_out: Mapping[str, Mapping[str, str]],
) -> Sequence[Unread]:
    """In order of their names. `topics`: there and not wanted; `tables`: known; `used`: read by views.

    `left_out`: table → column → why.
    """
    # `<prefix>.x` alone is no table's topic: tables are `<prefix>.<schema>.<table>`; our own sinks may share the prefix
    ours = tuple(s.topic_prefix for s in settings.config.sinks if isinstance(s, KafkaSinkConfig) and s.topic_prefix)
    head = f"{source.topic_prefix}."
    names = [t.removeprefix(head) for t in topics if t.startswith(head) and not (ours and t.startswith(ours))]
    found = [Unread(name, UNDECLARED) for name in names if "." in name and name != HEARTBEAT_TABLE]
    found += [Unread(name, UNUSED) for name in tables if name not in used]
    found += [
        Unread(f"{table}.{column}", why) for table, columns in left_out.items() for column, why in columns.items()
    ]
    return sorted(found, key=lambda one: one.what)
