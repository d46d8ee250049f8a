"""The log of epochs in a topic: it survives the machine, and the broker itself refuses a run that another has overtaken.

Always: what `settle` returned from is acknowledged by the broker and seen by readers; trimming writes what is kept anew, in
one transaction with the mark that it begins there. Called by the reclock; wiring hands in the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Protocol

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.sidecar.epochs.epoch_binding import Binding, Counted, Past, counted, kept
from headrace.sidecar.epochs.log_index import LogIndex


class EpochTopic(Protocol):
    """A topic of one partition, read as one run of bytes. Raises SourceError, and Fenced once another run has taken it."""

    @property
    def size(self) -> int:
        """Bytes in it."""

    def open(self) -> tuple[bytes, int]:
        """Take it over from whoever had it; all that it holds, and the epoch before which bindings were let go of."""

    def read(self) -> bytes:
        """All that it holds."""

    def append(self, data: bytes) -> None:
        """Add bytes; they are durable, and readers see them, when this returns. Called by one thread at a time."""

    def replace(self, data: bytes, before: int) -> None:
        """Have it hold these bytes alone: bindings with epochs before `before` may be missing."""

    def close(self) -> None:
        """Let go of it."""


class TopicLog:
    """See `EpochLog`. `executor`: where what is appended is sent, so that the engine's step need not wait for the broker.

    `before`: a checkpoint holds all epochs before this one. A log that was trimmed beyond that is of no use, and is begun
    anew: sinks are then given their views whole, as with a state that is lost.
    """

    def __init__(
        self, topic: EpochTopic, executor: Executor | None = None, reached: Reached = unwatched, before: int = 0
    ) -> None:
        self._topic, self._executor, self._reached = topic, executor, reached
        self._sending: Future[None] | None = None
        self._index = LogIndex()
        data, trimmed = topic.open()
        try:
            if before < trimmed:
                data = b""
                topic.replace(data, 0)
            self._index.read(data, before, "the topic of epochs")
        except BaseException:
            topic.close()
            raise

    @property
    def past(self) -> Past:
        """See `EpochLog`."""
        return self._index.past

    @property
    def bindings(self) -> list[Binding]:
        """See `EpochLog`."""
        return self._index.bindings

    @property
    def bound(self) -> Sequence[range]:
        """See `EpochLog.bound`."""
        return self._index.bound

    @property
    def size(self) -> int:
        """See `EpochLog.size`."""
        return self._topic.size

    def started(self) -> None:
        """See `EpochLog.started`."""
        self._index.started()

    def append(self, bindings: Sequence[Binding]) -> None:
        """See `EpochLog.append`."""
        self.settle()
        data = b"".join(b.line() for b in bindings)
        self._reached("reclock append")
        self._index.count(bindings)
        if self._executor is None:
            self._send(data)
        else:
            self._sending = self._executor.submit(self._send, data)

    def _send(self, data: bytes) -> None:
        self._reached("reclock written")
        self._topic.append(data)
        self._reached("reclock synced")

    def settle(self) -> None:
        """See `EpochLog.settle`."""
        if self._sending is not None:
            sending, self._sending = self._sending, None
            sending.result()

    def forget(self, before: int, keep: int) -> None:
        """See `EpochLog.forget`."""
        if not self._index.may_forget(keep):
            return
        self.settle()
        data, spans, left = self._topic.read(), list[slice](), Counter[Counted]()
        for span, body in kept(data, before, keep):
            left[counted(body["source"], body["kind"])] += len(body["ids"])
            spans.append(span)
        self._reached("reclock trimmed")
        self._topic.replace(b"".join(data[span] for span in reversed(spans)), before)
        self._reached("reclock replaced")
        self._index.epochs = left

    def close(self) -> None:
        """See `EpochLog.close`."""
        try:
            self.settle()
        finally:
            self._topic.close()
