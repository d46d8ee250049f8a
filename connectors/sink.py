"""The port through which the changes of views leave: rows and frontier in one transaction, fenced.

The group of views of one sink has one frontier. Order: `open` fences every earlier writer and tells where the sink
stands; then `write` is called with ever greater frontiers. A write is atomic and, once it returned, durable; after an
ambiguous failure the sink itself reads its frontier back and either confirms or repeats. Each raises SinkError, or
Fenced where another generation has taken over (never retried).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headrace.connectors.commit_place import CommitPlace
from headrace.connectors.source import Positions
from headrace.engine.batch.updates import Int64s
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema


class SinkError(HeadraceError):
    """A sink refused, or cannot be reached; names sink and view."""

    code = "sink"


class SinkAway(SinkError):
    """A sink does not answer, or cannot take a write now: what it holds is what was written, perhaps one write more."""


class Fenced(SinkError):
    """Another generation of the sidecar owns this sink now: this one must stop."""

    code = "fenced"


@dataclass(frozen=True)
class SourceFrontier:
    """Up to where one source is in: next offset of each partition, place and time (µs) of the last commit bound."""

    positions: Positions
    place: CommitPlace
    commit_us: int


@dataclass(frozen=True)
class Frontier:
    """What a sink reflects: every epoch ≤ `epoch`, and so these `sources` by name.

    `incarnation`: a greater one than before says that the sink itself had gone back (a restore, a failover that lost
    commits), or a source whose topics were made anew, and was compared and mended: frontiers advance within one incarnation.
    """

    epoch: int
    sources: Mapping[str, SourceFrontier] = field(default_factory=dict)
    incarnation: int = 1


@dataclass(frozen=True)
class SinkView:
    """A view as a sink must hold it. `key`: column positions of its identity, or None for a multiset.

    `fingerprint`: of plan and schema: a sink that holds the view under another fingerprint must be filled anew.
    `indexes`, `grants`: columns of each index, and roles that may read it, where the sink has tables.
    """

    name: str
    schema: Schema
    key: tuple[int, ...] | None
    fingerprint: str
    description: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    indexes: tuple[tuple[str, ...], ...] = ()
    grants: tuple[str, ...] = ()


@dataclass(frozen=True)
class SinkState:
    """Where a sink stands when opened: its frontier (None: never written) and which views it must be given whole.

    `errors`: the views marked as in error, with their messages.
    """

    generation: int
    frontier: Frontier | None
    missing: frozenset[str]
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ViewChanges:
    """A view's changes since the last write, consolidated per epoch, in (epoch, canonical) order.

    With `whole`, they are the view's whole content (all diffs > 0) and replace whatever the sink holds.
    """

    rows: pa.RecordBatch
    epochs: Int64s
    diffs: Int64s
    whole: bool = False


def last_epoch(change: ViewChanges | None, before: int | None) -> int | None:
    """The epoch of a view's rows once `change` is written: its last, or `before` where nothing changed."""
    return int(change.epochs[-1]) if change is not None and len(change.epochs) else before


@dataclass(frozen=True)
class EpochStamp:
    """What a sink may attach to a change: the source's name, its commit's place and time (µs) of one epoch.

    `first`: the first epoch of the range that ends at this one, where that has several: the change tells what they all did.
    """

    source: str
    place: CommitPlace
    commit_us: int
    first: int | None = None


class Sink(Protocol):
    """One writer of one group of views. `warnings`: what an operator should know, as of the last `open`."""

    name: str
    warnings: tuple[str, ...]

    def open(self, views: Sequence[SinkView], held: int | None = None) -> SinkState:
        """Create what is missing, fence every earlier generation, and say where the sink stands.

        `held`: the generation that this very run had already, where it comes back to a sink that it lost. Raises Fenced
        where a later one has come since. A generation is never below one that was held.
        """

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        """Apply `changes` and move the frontier, atomically and durably. Views without changes may be absent.

        `errors`: views whose state changed since the last write: the first error's message, or "" when mended. A view
        in error has left the group: its rows stay as they are and the frontier does not speak for it.
        """

    def close(self) -> None:
        """Let go. Idempotent."""
