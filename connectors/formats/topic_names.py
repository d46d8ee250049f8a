"""Names of the topics of one source, as its publisher makes them.

A topic tells what kind of message is in it, never which table: names are sanitised, and two tables may share a topic.
"""

from __future__ import annotations

import re
from typing import Final

_REFUSED: Final = re.compile(r"[^a-zA-Z0-9._-]")


def sanitised(name: str) -> str:
    """A topic name with every character that Kafka refuses as `_` (two of them for one beyond the basic plane)."""
    return _REFUSED.sub(lambda match: "_" * (2 if ord(match[0]) > 0xFFFF else 1), name)


def table_topic(prefix: str, table: str) -> str:
    """The topic of a table "schema.table"."""
    return sanitised(f"{prefix}.{table}")
