"""What changed of a recursion's state since it was last saved: rows as they were, and as they are, with rounds and counts.

Invariant: what was saved, with what is noted, is the state, unless `whole` says that only a comparison tells. Until something
is saved, and where much changed, it is `whole` and costs nothing. Single writer: the recursion that holds the state.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.recursion.state import Stated

_PART = 4
"""Past a part in so many of the state, what changed is no longer noted."""

_LEAST = 4_096


class Unsaved:
    """The notes of all variables."""

    def __init__(self, variables: int) -> None:
        self.whole = True
        self._variables = variables
        self._parts: list[list[Stated]] = [[] for _ in range(variables)]
        self._size = 0

    def note(self, variable: int, changes: Iterable[Stated], rows: int) -> None:
        """What an Update changes of a variable; `rows`: how large the state is."""
        for some in changes:
            if len(some.diffs) and not self.whole:
                self._parts[variable].append(some)
                self._size += len(some.diffs)
                if self._size > max(rows // _PART, _LEAST):
                    self.forget()

    def forget(self) -> None:
        """Only a comparison tells."""
        self.whole = True
        self._parts = [[] for _ in range(self._variables)]
        self._size = 0

    def take(self) -> list[list[Stated]]:
        """What is noted of each variable; from here on all that follows is."""
        parts = self._parts
        self.forget()
        self.whole = False
        return parts


__all__ = ["Unsaved"]
