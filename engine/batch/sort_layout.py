"""How an arrangement sorts its updates.

Always: by (hash, check) of the key, then by the order lane, then by the row's fingerprint, then by time. Two layouts
with one fingerprint sort alike. Called by whoever seals or looks up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import Assembly, Loose
from headrace.engine.batch.keys import (
    FULL_HASH,
    HashPlan,
    Keys,
    UInt64s,
    hash_rows,
    image_plan,
    key_plan,
    lanes_of,
    order_lane,
    order_shape,
)
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.errors import InvariantBroken
from headrace.engine.schema import DataType, Schema

_FITTING = 256
"""So many ways of putting rows together are remembered as such that fit."""

Lane = TypeVar("Lane", UInt64s, Int64s)

Ids = tuple[UInt64s, UInt64s, UInt64s, UInt64s, UInt64s]
"""Identity lanes: hash, check, order, high and low half of the row's fingerprint."""


_NARROW = 32
"""Bytes of a row, beside which the eight of a position count."""


@dataclass(frozen=True)
class Layout:
    """`schema`: the rows' columns; `key`, `order`: column positions; `hash_mask`: weakened by tests of collisions."""

    schema: Schema
    key: tuple[int, ...]
    order: tuple[int, ...] = ()
    hash_mask: int = FULL_HASH

    @cached_property
    def arrow(self) -> pa.Schema:
        """The payload's Arrow schema."""
        return self.schema.arrow

    @cached_property
    def key_types(self) -> tuple[DataType, ...]:
        """The Postgres types of the key's columns."""
        return tuple(self.schema.columns[k].type for k in self.key)

    @cached_property
    def order_types(self) -> tuple[DataType, ...]:
        """The Postgres types of the columns that order the rows of a key."""
        return tuple(self.schema.columns[k].type for k in self.order)

    @cached_property
    def _key_plan(self) -> HashPlan:
        return key_plan(self.arrow, self.key, self.key_types)

    @cached_property
    def image_plan(self) -> HashPlan:
        """How the rows' fingerprints are made."""
        return image_plan(self.arrow)

    @cached_property
    def sealing(self) -> Int64s:
        """Both, and how rows are ordered within a key, as `headrace.engine.kernels.small_batch` reads them."""
        key, image = self._key_plan, self.image_plan
        mask = self.hash_mask - (1 << 64) if self.hash_mask >> 63 else self.hash_mask
        head = [len(key.steps), int(key.exact), self.order[0] if self.order else -1, mask]
        shape = order_shape(self.arrow.field(self.order[0]).type, self.order_types) if self.order else (0, 0, 0)
        return np.concatenate([np.array([head]), key.steps, np.array([[*shape, 0]]), image.steps])

    @cached_property
    def _assemblies(self) -> dict[tuple[int, ...], Assembly]:
        return {}

    def assembly(self, columns: Sequence[int] | None = None) -> Assembly:
        """How rows of this layout, or of those of its `columns`, are put together from its payloads."""
        chosen = tuple(range(len(self.schema.columns)) if columns is None else columns)
        found = self._assemblies.get(chosen)
        if found is None:
            found = Assembly.of(pa.schema([self.arrow.field(k) for k in chosen]), chosen)
            self._assemblies[chosen] = found
        return found

    @cached_property
    def narrow(self) -> bool:
        """Whether rows have a fixed width and so few bytes that moving one costs less than keeping its position."""
        widths = self.assembly().steps[:, 1]
        return bool((widths >= 0).all() and widths.sum() <= _NARROW)

    def filled_assembly(self, filled: Mapping[int, int]) -> Assembly:
        """How rows are put together of which some columns are picked by a lane of their own: `filled`, column → lane."""
        if not filled:
            return self.assembly()
        columns = range(len(self.schema.columns))
        return Assembly.of(self.arrow, columns, [filled.get(k, 0) for k in columns])

    @cached_property
    def fingerprint(self) -> str:
        """Names what decides the order and the lanes of a batch, as 32 hex digits; column names do not count."""
        types = [str(field.type) for field in self.arrow]
        declared = [t.sql() for t in self.key_types]
        ordered = tuple(t.sql() for t in self.order_types)
        text = repr((types, declared, self.key, self.order, self.hash_mask, "identities 1", *ordered))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def check_rows(self, rows: pa.RecordBatch | Exported) -> None:
        """Raises InvariantBroken unless `rows` have this layout's lanes."""
        whole = rows.whole if isinstance(rows, Loose) else None
        if whole is not None and self._fitting.get(id(whole)) is whole:
            return
        schema = rows.schema
        if schema is not self.arrow and not schema.equals(self.arrow) and schema.types != self.arrow.types:
            raise InvariantBroken(
                "rows do not have the lanes of their layout", rows=schema.types, layout=self.arrow.types
            )
        if whole is not None:
            if len(self._fitting) >= _FITTING:
                self._fitting.clear()
            self._fitting[id(whole)] = whole

    @cached_property
    def _fitting(self) -> dict[int, Assembly]:
        """How rows that fit were put together."""
        return {}

    def keys(self, rows: pa.RecordBatch) -> Keys:
        """The key identities of `rows`, which have this layout's columns."""
        return self.keys_at(Exported(rows), rows.num_rows)

    def keys_at(self, struct: Exported, size: int) -> Keys:
        """As `keys`, of `size` rows exported already."""
        hashes, checks, _ = hash_rows(struct, size, self._key_plan, self.hash_mask)
        return Keys(hashes, checks)

    def keys_of(self, updates: Updates) -> Keys:
        """The key identities of the updates' rows, which have this layout's key columns; worked out once."""
        hashes, checks, _ = lanes_of(updates, self._key_plan, self.hash_mask)
        return Keys(hashes, checks)

    def tell_order(self, updates: Updates, order: Int64s | None, keys: Keys) -> None:
        """No two of `updates` have one key: `order` (None: as they stand) is that of their `keys`, which are sorted."""
        updates.identities[self._key_plan, self.hash_mask, "order"] = order, keys

    def told_order(self, updates: Updates) -> tuple[Int64s | None, Keys] | None:
        """What `tell_order` was told, if it was."""
        found: tuple[Int64s | None, Keys] | None = updates.identities.get((self._key_plan, self.hash_mask, "order"))
        return found

    def ids(self, updates: Updates) -> Ids:
        """The identity lanes of the updates' rows; a lane that is known to have one value has stride 0.

        Raises as `check_rows` does.
        """
        hashes, checks, order = self.sorting(updates)
        high, low, _ = lanes_of(updates, self.image_plan)
        return hashes, checks, order, high, low

    def sorting(self, updates: Updates) -> tuple[UInt64s, UInt64s, UInt64s]:
        """As `ids`, without the fingerprint: hash, check and order."""
        self.check_rows(updates.struct)
        size = len(updates)
        hashes, checks, zero = lanes_of(updates, self._key_plan, self.hash_mask)
        order = order_lane(updates.rows, self.order, self.order_types) if self.order else constant_lane(0, size)
        return hashes, constant_lane(0, size) if zero else checks, order


@lru_cache(maxsize=4096)
def layout_of(schema: Schema, key: tuple[int, ...], order: tuple[int, ...] = ()) -> Layout:
    """The layout of these; the same object again, so that what it works out about itself is worked out once."""
    return Layout(schema, key, order)


_ZERO = np.zeros(1, np.uint64)


def constant_lane(value: int, size: int) -> UInt64s:
    """A lane of one value that takes no memory: of stride 0."""
    return stretched(_ZERO if value == 0 else np.array([value], np.uint64), size)


def stretched(lane: Lane, size: int) -> Lane:
    """The first entry of `lane` as a lane of `size` entries, of stride 0; `lane` may only be empty if `size` is 0."""
    # Ten times faster than np.broadcast_to, and this is on the way of every small batch.
    return np.ndarray((size,), lane.dtype, lane if len(lane) else _ZERO, 0, (0,))


def shortened(lane: Lane, size: int) -> Lane:
    """The first `size` entries of `lane`, which nobody else holds; the memory of the others is given back, uncopied."""
    if lane.strides[0] == 0:
        return lane[:size]
    lane.resize(size, refcheck=False)
    return lane
