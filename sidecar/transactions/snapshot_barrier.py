"""The snapshot barrier: holds an END back while a snapshot may have begun before it.

A connector sends nothing while it starts and reads, and its notification stands in another topic. So at a start, and after a
pause, an END waits until the notifications were read as far as they reached when it was met. Invariant: ENDs that follow one
another closely wait for nothing. The assembler meets them; the intake lets the barrier go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.connectors.changes import TransactionMark

LULL_MS = 200
"""No snapshot lies between two marks of which the second was sent less than this after the first, as Kafka has it: a connector
has to find its slot, or to interrupt its stream, to tell of the snapshot, and to read the tables."""
Passed = Callable[[], bool]


class SnapshotBarrier:
    """`look`: sees how far the notifications go now; what it gives says, asked again and again, whether all of that was read."""

    def __init__(self, look: Callable[[], Passed]) -> None:
        self._look = look
        self._sent_ms = self._met = -1
        self._after: deque[int] = deque()
        self._asked: tuple[int, Passed] | None = None

    def met(self, mark: TransactionMark) -> None:
        """A BEGIN or END, in the order of its partition."""
        if self._sent_ms < 0 or not 0 <= mark.sent_ms - self._sent_ms < LULL_MS:
            self._after.append(mark.offset)
        self._sent_ms, self._met = mark.sent_ms, mark.offset

    def __bool__(self) -> bool:
        return bool(self._after)

    def holds(self, end: TransactionMark) -> bool:
        """Whether this END must wait."""
        return bool(self._after) and end.offset >= self._after[0]

    def advance(self) -> None:
        """Go on as far as it goes now: one look lets through every mark that was met before it."""
        while self._after:
            if self._asked is None:
                self._asked = self._met, self._look()
            through, passed = self._asked
            if not passed():
                return
            self._asked = None
            while self._after and self._after[0] <= through:
                self._after.popleft()
