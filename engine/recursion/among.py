"""Heads of rules that are looked for, asked by whichever of their columns are known. An Update makes one; `derive` asks it."""

from __future__ import annotations

import numpy as np

from headrace.engine.recursion.state import Lanes, Store


class Among:
    """Heads that are looked for. Invariant: `has` leaves none of them out, whichever of their columns are known."""

    def __init__(self, rows: Lanes) -> None:
        self._rows = rows
        self._stores: dict[tuple[int, ...], Store] = {}

    def has(self, keys: Lanes, columns: tuple[int, ...]) -> np.ndarray:
        """Which keys are the `columns` of one of them."""
        store = self._stores.get(columns)
        if store is None:
            store = self._stores[columns] = Store(len(columns))
            store.place(np.ascontiguousarray(self._rows[:, columns]))
        found: np.ndarray = store.find(keys) >= 0
        return found
