"""The closed list of events that a run writes to its log: name, level and meaning of each.

Invariant: `event_log.say` refuses a name that is not here. docs/events.md is generated from this list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Event:
    """One kind of event. `ends`: the event that says that the state which this one begins is over."""

    level: Level
    meaning: str
    ends: str = ""


EVENTS: dict[str, Event] = {
    "unchecked": Event("warning", "No `connect:` says where the source's connector can be looked at"),
    "views_kept": Event("warning", "The run before died: its views stay in force, not those of the folder"),
    "running": Event("info", "The sidecar serves; `epoch` is the one it goes on from"),
    "sink_warning": Event("warning", "A sink was opened and has something that an operator should know"),
    "stopped": Event("info", "The run ended in order; `left_for_the_next_start` names what there was no time for"),
    "cut_off": Event("warning", "The time for stopping was over; the next start writes what was not written"),
    "failed": Event("error", "The run ends because a part failed"),
    "workers_lost": Event("error", "A worker was lost; all are started anew from the checkpoint", ends="workers_restarted"),
    "slots_missing": Event("error", "A cluster has too few slots for the workers; tried again until there are enough",
                           ends="workers_restarted"),
    "workers_restarted": Event("info", "All workers serve again; `seconds` since they were lost"),
    "fenced": Event("error", "Another run has taken over; this one has written nothing since"),
    "applied": Event("info", "A changed folder of views is in force, after SIGHUP"),
    "not_applied": Event("error", "A changed folder of views was refused, after SIGHUP"),
    "checkpoint": Event("info", "A checkpoint is complete; a restart goes on from `epoch`"),
    "snapshot": Event("info", "The source's snapshot is being read, or (`done`) is over"),
    "stalled": Event("error", "A transaction has lacked the same events for 30 s", ends="resumed"),
    "resumed": Event("info", "The transaction that was stalled is whole"),
    "mended": Event("info", "What a lost state had been mended by was done again by itself; the table, and what changed"),
    "mend_failed": Event("error", "The same failed; it is tried again, and the table stays unproven"),
    "table_suspended": Event("error", "A record of a table cannot be taken in: its views are suspended", ends="table_resumed"),
    "table_resumed": Event("info", "The table goes on"),
    "table_unproven": Event("error", "A table was dropped, renamed or repartitioned: views may be wrong", ends="table_proven"),
    "table_proven": Event("info", "The source's catalog is again as `headrace.yaml` has the table"),
    "column_missing": Event("warning", "Records of a table no longer have a declared column", ends="column_back"),
    "column_back": Event("info", "Records have the column again, or no longer need it"),
    "dead_letters": Event("warning", "Records that cannot be decoded were set aside; `count` since the last such line"),
    "source_down": Event("error", "No heartbeat of the source has arrived for 10 s, or Kafka does not answer", ends="source_up"),
    "source_up": Event("info", "The source delivers again"),
    "clock_skew": Event("warning", "The clocks of the source and of this machine differ by at least `seconds`"),
    "view_error": Event("error", "A view's SQL fails, or a table or column of it is missing", ends="view_restored"),
    "view_restored": Event("info", "The view is kept up to date again"),
    "view_late": Event(
        "warning",
        "A view in a sink is older than its limit `freshness.warn`, or a recursion of it is evaluated between steps",
        ends="view_fresh",
    ),
    "view_stale": Event("error", "A view in a sink is older than its limit `freshness.error`", ends="view_fresh"),
    "view_fresh": Event("info", "The view is within its limits again"),
    "detached": Event("error", "A sink refuses writes, is away or is too slow; the others go on", ends="attached"),
    "attached": Event("info", "The sink takes part again"),
    "each_ended": Event("warning", "A follower of each transaction was behind for longer than its lag; it is ended"),
    "memory": Event("warning", "Memory went over its budget (`over=true`) or is within it again"),
    "kafka_client": Event("warning", "A line of librdkafka; `left_out` like it were not written in the last minute"),
    "library": Event("warning", "A line of another library"),
}  # fmt: skip
