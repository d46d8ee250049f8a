"""Heartbeats as a chain: each names the one before it, so that a missing one is noticed.

Invariant: whatever is read after a heartbeat was committed after it, and nothing between the two is lost. A heartbeat that
does not follow on the last one is an error. This is how a source that was restored from an older copy is found, as Postgres
silently skips what it commits anew below the connector's LSN. The source's intake owns its chain; checkpoints keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.connectors.changes import HeartbeatRow
from headrace.sidecar.transactions.model import ContinuityError

HINT = (
    "it was restored, or failed over to a copy that was behind, or its slot was lost: delete the connector, its slot, offsets "
    "and topics, register it again, which makes a new snapshot, and start with an empty state folder"
)


@dataclass
class HeartbeatChain:
    """`last`: row of the heartbeat table → how it stands, and the LSN of that. `floor`: up to there nothing is checked."""

    source: str
    floor: int = -1
    last: dict[str, tuple[int, str, int]] = field(default_factory=dict)

    def met(self, beat: HeartbeatRow) -> None:
        """A heartbeat, or a repetition of one. Raises ContinuityError where some before it never came."""
        if beat.kind == "t":
            self.last.clear()
            return
        last = self.last.get(beat.row)
        if last is not None and beat.lsn <= last[2]:
            return
        if beat.now is None:
            self.last.pop(beat.row, None)
            return
        if last is not None and beat.kind == "u" and beat.lsn > self.floor and not _follows(beat, last):
            raise ContinuityError(
                "the source's heartbeats do not follow on each other: changes were lost between them", source=self.source,
                beat=beat.now[0], lsn=beat.lsn, last_beat=last[0], last_lsn=last[2], topic=beat.topic,
                partition=beat.partition, offset=beat.offset, hint=HINT,
            )  # fmt: skip
        self.last[beat.row] = (*beat.now, beat.lsn)

    def json(self) -> Sequence[Mapping[str, Any]]:
        """As a manifest keeps it."""
        return [{"row": row, "beat": n, "at": at, "lsn": lsn} for row, (n, at, lsn) in self.last.items()]

    def restore(self, body: Iterable[Mapping[str, Any]], lsn: int) -> None:
        """Of a manifest that is as of `lsn`: one that knows no beats was written before they were looked at. Raises KeyError."""
        self.last = {one["row"]: (one["beat"], one["at"], one["lsn"]) for one in body}
        self.floor = -1 if self.last else lsn


def _follows(beat: HeartbeatRow, last: tuple[int, str, int]) -> bool:
    """By what stood there before, where the record says it (REPLICA IDENTITY FULL), else by its number."""
    if beat.before is not None:
        return beat.before == last[:2]
    return beat.now is not None and beat.now[0] == last[0] + 1
