"""The frontier record of a Kafka sink: the group's frontier, and where a reader must stop in each topic.

Invariant: it is written in the transaction of the rows it speaks of, with the sink's name as key. Pure; the sink calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from headrace.connectors.commit_place import place_of
from headrace.connectors.sink import Frontier, SourceFrontier

Ends = Mapping[str, Mapping[int, int]]
"""topic → partition → the offset before which everything belongs to epochs up to the frontier's."""


@dataclass(frozen=True)
class InError:
    """The first error of a view that has left the group, and the epoch of its records (None: it never had any)."""

    error: str
    epoch: int | None


@dataclass(frozen=True)
class FrontierRecord:
    """`writes`: transactions of the group so far. `views`: fingerprint by topic; None of a view not filled, or gone.

    `run`: whose claim of the generation stands, "" where a version wrote it that named none. `errors`: by topic, the views in
    error. `first`: the first epoch of the last write; its last is the frontier's.
    """

    generation: int = 0
    run: str = ""
    writes: int = 0
    frontier: Frontier | None = None
    ends: Ends = field(default_factory=dict)
    views: Mapping[str, str | None] = field(default_factory=dict)
    errors: Mapping[str, InError] = field(default_factory=dict)
    first: int | None = None

    @property
    def place(self) -> tuple[int, str, int]:
        """Which record of the sink it is: no other one was written by this run, in its generation, as this write."""
        return self.generation, self.run, self.writes

    def moved(self, **changes: Any) -> FrontierRecord:
        """The record after one more transaction."""
        return replace(self, writes=self.writes + 1, **changes)


def encode(sink: str, standing: FrontierRecord, program: str) -> bytes:
    """The record's value."""
    at = standing.frontier
    return orjson.dumps(
        {
            "sink": sink,
            "first_epoch": standing.first,
            "epoch": None if at is None else at.epoch,
            "sources": {
                name: {
                    **s.place.json(),
                    "order": s.place.order,
                    "commit_us": s.commit_us,
                    "positions": _texts(s.positions),
                }
                for name, s in ({} if at is None else at.sources).items()
            },
            "ends": _texts(standing.ends),
            "views": dict(standing.views),
            "errors": {topic: {"error": e.error, "epoch": e.epoch} for topic, e in sorted(standing.errors.items())},
            "generation": standing.generation,
            "run": standing.run,
            "incarnation": 1 if at is None else at.incarnation,
            "writes": standing.writes,
            "program": program,
        }
    )


def decode(record: Mapping[str, Any]) -> FrontierRecord:
    """The inverse of `encode`."""
    frontier = None
    if record["epoch"] is not None:
        sources = {
            name: SourceFrontier(_numbers(s["positions"]), place_of(s), s["commit_us"])
            for name, s in record["sources"].items()
        }
        frontier = Frontier(record["epoch"], sources, record.get("incarnation", 1))
    errors = {topic: InError(e["error"], e["epoch"]) for topic, e in record.get("errors", {}).items()}
    ends, first = _numbers(record["ends"]), record.get("first_epoch")
    run, views = record.get("run", ""), record["views"]
    return FrontierRecord(record["generation"], run, record["writes"], frontier, ends, views, errors, first)


def _texts(nested: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {topic: {str(p): o for p, o in sorted(ps.items())} for topic, ps in sorted(nested.items())}


def _numbers(nested: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {topic: {int(p): o for p, o in ps.items()} for topic, ps in nested.items()}
