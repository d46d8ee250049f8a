"""The index of an epoch log while it is read and written, and the port of such logs.

Invariant: bindings come in order of their epochs; one that binds epochs a second time does not count. The log in a file and the
log in a topic use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from headrace.sidecar.epochs.epoch_binding import Binding, Counted, Past, ReclockError, body_of, counted, lines
from headrace.sidecar.state.filesystem import Buffer


class EpochLog(Protocol):
    """A durable log of bindings. It holds what was read of it until `started`."""

    @property
    def past(self) -> Past:
        """What it says of epochs that a checkpoint holds."""

    @property
    def bindings(self) -> list[Binding]:
        """The other bindings."""

    @property
    def bound(self) -> Sequence[range]:
        """The epochs that it bound when it was opened."""

    @property
    def size(self) -> int:
        """Bytes that it takes."""

    def started(self) -> None:
        """Let go of what was read."""

    def append(self, bindings: Sequence[Binding]) -> None:
        """Write, and begin to make it durable. Raises ReclockError."""

    def settle(self) -> None:
        """Wait until all that was appended is durable. Raises ReclockError; Fenced where another run has the log."""

    def forget(self, before: int, keep: int) -> None:
        """Drop bindings whose epochs are all < `before`, but for each source's newest `keep` epochs among these."""

    def close(self) -> None:
        """Let go of it."""


class LogIndex:
    """The bindings read, and how many epochs of each source and sort there are. Single writer: the log."""

    def __init__(self) -> None:
        self.past, self.bindings = Past(), list[Binding]()
        self.epochs = Counter[Counted]()

    def read(self, data: Buffer, before: int, where: object) -> int:
        """Take in what a log holds; how many bytes of it are whole. Raises ReclockError where more than its end is not."""
        good = end = 0
        for line in lines(data):
            try:
                body = body_of(line)
                if body["first"] < end:
                    raise ValueError("these epochs were bound before")
                end = body["first"] + len(body["ids"])
                if end <= before:
                    self.past.add(body)
                else:
                    self.bindings.append(Binding.of(body))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if good + len(line) == len(data):
                    break
                raise ReclockError("the reclock log is damaged", file=where, byte=good,
                                   hint="restore the state folder, or start with an empty one") from error  # fmt: skip
            self.epochs[counted(body["source"], body["kind"])] += len(body["ids"])
            good += len(line)
        return good

    @property
    def bound(self) -> Sequence[range]:
        """The epochs that were read."""
        return [*self.past.runs, *(b.epochs for b in self.bindings)]

    def started(self) -> None:
        """Let go of what was read."""
        self.past, self.bindings = Past(), []

    def count(self, bindings: Sequence[Binding]) -> None:
        """These were written."""
        for binding in bindings:
            self.epochs[counted(binding.source, binding.stamps[0].kind)] += len(binding.stamps)

    def may_forget(self, keep: int) -> bool:
        """Whether at least half of the epochs would go: to write the others costs no more than to bind these did."""
        return 2 * sum(max(0, n - keep) for n in self.epochs.values()) >= max(1, self.epochs.total())
