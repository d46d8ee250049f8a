"""What a reduce computes and what it keeps, worked out once when a plan is built.

Always: a group's row in the output arrangement holds its key, its lanes and the values that are no sums of lanes, so
that the result is a function of that row alone. Called by the reduce operator and the dataflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.aggregates import Slot
from headrace.engine.operators.min_max import Extreme
from headrace.engine.operators.ranks import has_images
from headrace.engine.schema import BYTEA, TEXT, Column, DataType, Schema


@dataclass(frozen=True)
class Shape:
    """A reduce over prepared rows: the first `key` columns are the group key, the others are arguments.

    `types`: of every column; `slots`: the aggregates; `schema`: of the result, key columns ++ one an aggregate.
    `least`: a group is shown while it has so many rows.
    """

    key: int
    types: tuple[DataType, ...]
    slots: tuple[Slot, ...]
    schema: Schema
    least: int = 1

    @cached_property
    def key_types(self) -> tuple[DataType, ...]:
        """The types of the key columns."""
        return self.types[: self.key]

    @cached_property
    def lanes(self) -> int:
        """How many lanes a group has, the number of rows included."""
        return 1 + sum(slot.width for slot in self.slots)

    @cached_property
    def plain(self) -> tuple[Slot, ...]:
        """The sums of lanes over the rows themselves."""
        return tuple(s for s in self.slots if s.width and not s.aggregate.distinct)

    @cached_property
    def distinct_slots(self) -> tuple[Slot, ...]:
        """The sums of lanes over distinct values."""
        return tuple(s for s in self.slots if s.width and s.aggregate.distinct)

    @cached_property
    def distinct(self) -> tuple[int, ...]:
        """The columns of which distinct values are summed up in lanes."""
        return tuple(dict.fromkeys(s.column for s in self.distinct_slots if s.column is not None))

    @cached_property
    def extremes(self) -> tuple[Extreme, ...]:
        """The least and greatest values that are asked for, each once."""
        return tuple(dict.fromkeys(s.extreme for s in self.slots if s.extreme is not None))

    @cached_property
    def wholes(self) -> tuple[Slot, ...]:
        """The aggregates that need all values of their group."""
        return tuple(s for s in self.slots if s.is_whole)

    @cached_property
    def places(self) -> dict[int, int]:
        """Of each slot (by place) that is no sum of lanes, which of the values kept is its own."""
        extremes, wholes = self.extremes, self.wholes
        found = {k: extremes.index(s.extreme) for k, s in enumerate(self.slots) if s.extreme is not None}
        return found | {k: len(extremes) + wholes.index(s) for k, s in enumerate(self.slots) if s.is_whole}

    @cached_property
    def has_images(self) -> bool:
        """True if equal keys may look different; a group shows the least image among its rows."""
        return any(has_images(kind) for kind in self.key_types)

    @cached_property
    def is_sums(self) -> bool:
        """Whether the state of a group is only sums of lanes over its rows."""
        return not (self.extremes or self.wholes or self.distinct or self.has_images)

    @cached_property
    def is_count(self) -> bool:
        """True if it shows no more of a group than whether it is there, and how many rows it has."""
        more = self.extremes or self.wholes or self.distinct
        return self.key > 0 and not more and self.lanes == 1 and len(self.types) == self.key

    @cached_property
    def reads(self) -> Int64s:
        """What the plain slots add up: of each its column, what of it is read, its first lane and how many it has."""
        found = [(s.column, s.read, s.first, s.width) for s in self.plain]
        return np.array(found, np.int64).reshape(len(found), 4)

    @cached_property
    def accumulators(self) -> Schema:
        """The rows of the output arrangement: key ++ the lanes, packed ++ extremes ++ wholes ++ the wholes' error."""
        lanes = Column("lanes", BYTEA, nullable=False)
        extremes = [Column(f"extreme{i}", e.kind) for i, e in enumerate(self.extremes)]
        wholes = [Column(f"whole{i}", s.aggregate.type) for i, s in enumerate(self.wholes)]
        error = [Column("error", TEXT)] if wholes else []
        key = self.schema.columns[: self.key]
        return Schema((*key, lanes, *extremes, *wholes, *error), key=tuple(range(self.key)))
