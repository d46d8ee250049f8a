"""What a recursive group is asked and gives: how changes are followed, what leaves, and its state as readers know it.

Always: these are values; `switching` makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from headrace.engine.batch.updates import Int64s
from headrace.engine.recursion.state import Store
from headrace.engine.recursion.unsaved import Unsaved


class Strategy(Enum):
    """How a change is followed."""

    AUTO = "auto"
    UPDATE = "update"
    BOOTSTRAP = "bootstrap"


@dataclass(frozen=True)
class Left:
    """What leaves of a variable: rows, each with whether it came in the last round, and multiplicities."""

    rows: list[pa.Array]
    diffs: Int64s


@dataclass(frozen=True)
class Followed:
    """What leaves: rows by variable, and messages. `work`: what was counted for it."""

    variables: list[Left]
    messages: list[str]
    message_diffs: list[int]
    work: int = 0


@dataclass
class Account:
    """What was done so far. `work`: that of the last Bootstrap; `rounds`: its rounds; `dropped`: Updates past their budget."""

    bootstraps: int = 0
    updates: int = 0
    dropped: int = 0
    not_tried: int = 0
    work: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Base:
    """The state as readers know it: of each variable its rows; the messages; and for a checkpoint what of it is not saved.

    Of a group that is late it is the state that it had when it left, and nothing changes it until the group is back.
    """

    stores: Sequence[Store]
    failures: Counter[str]
    account: Account
    unsaved: Unsaved


__all__ = ["Account", "Base", "Followed", "Left", "Strategy"]
