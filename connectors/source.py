"""The port of a source: messages, in offset order of each partition.

Invariant: positions are the caller's. A source is opened at positions that the caller keeps, and `commit` only informs lag
tools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headrace.connectors.changes import MessageBatch
from headrace.engine.errors import HeadraceError

Positions = Mapping[str, Mapping[int, int]]
"""topic → partition → the next offset to read."""


class SourceError(HeadraceError):
    """A source cannot be reached, or can no longer give what comes next at a position; names topic and partition."""

    code = "source"


class Source(Protocol):
    """One reader of a set of topics."""

    def open(self, positions: Positions) -> None:
        """Start reading every partition of every wanted topic, at `positions` or else at its beginning.

        Raises SourceError (unreachable; a topic missing; a position out of the range that is still there).
        """

    def poll(self, timeout: float) -> Sequence[MessageBatch]:
        """What arrived, waiting at most `timeout` seconds for the first of it. Raises SourceError."""

    def rest(self) -> Sequence[MessageBatch]:
        """What was read, and decoded, ahead of `poll`, as if it were polled; until the next `poll` nothing is read ahead."""

    def positions(self) -> Positions:
        """The next offset of every partition assigned, transaction markers and compaction gaps passed."""

    def high_watermarks(self) -> Positions:
        """The end of every partition as last seen, for lag; what stands in transactions still open is before it."""

    def at_end(self) -> bool:
        """Whether all that may be read was handed out, as last seen: behind the first open transaction nothing may be."""

    def look(self, topic: str) -> Callable[[], bool]:
        """See how far a topic goes now, without waiting; what is given says, asked again and again between polls, whether all
        that was there and may ever be read was handed out, that of transactions which were open then too. Of a topic that is
        not read it says so at once; where the broker does not answer it goes on asking."""

    def topic_ids(self) -> Mapping[str, str]:
        """The id of every topic read, given to it when it was made; none where the source knows none.

        The ids are those of the topics that the positions are of: a topic made anew never replaces one here.
        """

    def others(self) -> frozenset[str]:
        """The topics that were there when last looked and are not wanted."""

    def silent_for(self) -> float:
        """Seconds for which nobody has answered; 0.0 where the source answers, or cannot be away."""

    def commit(self, positions: Positions) -> None:
        """Tell the source that `positions` are safe. Asynchronous, best effort."""

    def close(self) -> None:
        """Let go. Idempotent."""


def check_topic_ids(source: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise SourceError where a topic whose positions were kept is another one now, whatever its offsets say."""
    for topic, known in before.items():
        if now.get(topic, known) != known:
            raise SourceError(
                "the topic was deleted and made anew while it was not read", source=source, topic=topic, id=now[topic],
                read=known, hint="start with an empty state folder once the connector has made a new snapshot: "
                "what the old topic held and nobody read is lost",
            )  # fmt: skip
