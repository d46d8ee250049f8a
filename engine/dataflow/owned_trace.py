"""A node's own hold on an arrangement: filling it step by step, from a checkpoint, or from a collection's content.

Always: what is inserted is described by whole runs of epochs, and a quiet step inserts nothing (the trace catches up
when it is asked). Called by the dataflow's nodes that keep state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.engine.arrangement import Arranged, Registry, arrangement_name
from headrace.engine.batch.batch import Batch
from headrace.engine.batch.description import Description
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Updates
from headrace.engine.errors import InvariantBroken
from headrace.engine.kernels.reduce import all_within
from headrace.engine.lattice import CLOSED, Frontier
from headrace.engine.operators import chunked_delta
from headrace.engine.operators.delta import Delta
from headrace.engine.schema import Schema
from headrace.engine.trace.spine import Spine

_FEW = 8
"""Up to so many times are looked at one by one."""


class Trace:
    """One arrangement, written by one node. `loaded`: its content is that of the dataflow's frontier. `under_way`: it is in the
    middle of rounds that go on between steps: nobody asks for it, and it keeps all times.
    """

    under_way = False

    def __init__(
        self,
        registry: Registry,
        label: str,
        collection: str,
        schema: Schema,
        key: tuple[int, ...],
        order: tuple[int, ...] = (),
    ) -> None:
        self._registry = registry
        self.layout = layout_of(schema, key, order)
        name = arrangement_name(f"{label}-{collection[:20]}", key, order)
        self.arranged: Arranged = registry.add(collection, self.layout, name)
        self._handle = self.arranged.hold("self")
        self.spine: Spine = self.arranged.spine
        self.loaded = False
        self._waiting: tuple[Callable[[int], Updates | None], int] | None = None

    @property
    def name(self) -> str:
        """The stable name of the arrangement."""
        return self.arranged.name

    def insert(self, updates: Updates, upper: int, now: int = 0) -> Batch:
        """Append the updates of the epochs before `upper` that were not yet inserted, in a scope those of the round `now`.

        The rounds of a step are batches side by side: the first spans its epochs, the others have no width. Returns the
        updates as they were sealed.
        """
        upon = Description(self.spine.upper, Frontier.at(upper))
        batch = Batch.seal(self.layout, updates.at(updates.times | now) if now else updates, upon)
        self.spine.insert(batch)
        return batch

    def insert_later(self, made: Callable[[int], Updates | None], upper: int) -> None:
        """As `insert`, when the trace is next used or advanced: of what was only until since, nothing need be kept.

        `made`: the updates, faithful from an epoch on; those of the epochs before `upper` that were not yet inserted.
        """
        self.settle()
        self._waiting = made, upper

    def settle(self) -> None:
        """Insert what waits; whoever reads the spine itself calls this first."""
        if self._waiting is None:
            return
        (made, upper), self._waiting = self._waiting, None
        since = min(self.spine.since.epoch, upper - 1)
        updates = made(since)
        if updates is None:
            self.catch_up(upper)
            return
        upon = Description(self.spine.upper, Frontier.at(upper), Frontier.at(since))
        self.spine.insert(Batch.seal(self.layout, updates, upon))

    def settled(self) -> Spine:
        """Its spine, with all that is known to lie in it."""
        self.settle()
        return self.spine

    def catch_up(self, upper: int) -> None:
        """Say that nothing else happened before `upper`."""
        self.settle()
        if self.spine.upper.epoch < upper:
            self.spine.insert(Batch.empty(self.layout, Description(self.spine.upper, Frontier.at(upper))))

    def complete(self, upper: int) -> None:
        """Be complete up to there, for a checkpoint."""
        self.catch_up(upper)

    def pinned(self, frontier: int) -> Trace:
        """Another trace over the same batches: what is complete before `frontier`, which stays as it is."""
        self.catch_up(frontier)
        layout = self.layout
        made = Trace(Registry(), "pinned", self.name, layout.schema, layout.key, layout.order)
        made.load(self.spine.batches(), frontier)
        return made

    def load(self, batches: Sequence[Batch], frontier: int) -> None:
        """Resume from the batches of a checkpoint, or of another dataflow in which columns may have other names, complete up to
        `frontier`. Raises InvariantBroken for any other."""
        for batch in batches:
            self.spine.insert(batch.under(self.layout))
            self._handle.advance(batch.description.since)
        if self.spine.upper.epoch > frontier:
            raise InvariantBroken("an arrangement is ahead of its checkpoint", arrangement=self.name, frontier=frontier)
        self.catch_up(frontier)
        self.loaded = True

    def fill(self, content: Updates | None, frontier: int) -> None:
        """Start from a collection's content at frontier - 1."""
        as_of = frontier - 1
        description = Description.epochs(0, frontier, as_of)
        if content is None or not len(content):
            self.spine.insert(Batch.empty(self.layout, description))
        else:
            self.spine.insert(Batch.seal(self.layout, content, description))
        self._handle.advance(Frontier.at(as_of))
        self.loaded = True

    def snapshot(self, as_of: int) -> Updates:
        """The content at `as_of`, an epoch that is complete. Raises NotFaithful before since."""
        self.catch_up(as_of + 1)
        return self.spine.snapshot(as_of)

    def in_pieces(self, as_of: int) -> Delta:
        """As `snapshot`, in pieces where it is large."""
        self.catch_up(as_of + 1)
        if len(self.spine) <= chunked_delta.PIECE:
            return Delta(self.spine.snapshot(as_of), None)
        return chunked_delta.Pieced(
            Delta(rows, None) for rows in self.spine.snapshot_in_pieces(as_of, chunked_delta.PIECE)
        )

    def window(self, lower: int, upper: int) -> Updates:
        """The updates of the epochs [lower, upper), which are complete. Raises NotFaithful unless since < lower."""
        self.catch_up(upper)
        return self.spine.window(lower, upper)

    def covers(self, as_of: int) -> bool:
        """True if `as_of` does not lie before since."""
        return as_of >= self.spine.since.epoch

    def check_faithful(self, as_of: int) -> None:
        """Raises NotFaithful if `as_of` lies before since."""
        if not self.covers(as_of):
            self.spine.snapshot(as_of)

    def advance(self, since: int) -> bool:
        """Give up the times before `since`, as far as the trace itself has come; whether none is left to be given up later."""
        if self.under_way:
            return False
        upper = self.spine.upper.epoch if self._waiting is None else self._waiting[1]
        epoch = min(since, upper - 1)
        if epoch > self._handle.since.epoch:
            self._handle.advance(Frontier.at(epoch))
        self.settle()
        return self._handle.since.epoch >= upper - 1

    def read_by(self, reader: str) -> Reader:
        """Name a reader; it never asks for the past, so it holds no since."""
        return Reader(self._registry, self.arranged, reader)

    def adopt(self, registry: Registry, name: str) -> None:
        """Be known to `registry`, by a name that is stable over restarts."""
        self._registry = registry
        registry.adopt(self.arranged, name)

    def release(self) -> None:
        """Let go of the arrangement, which is dropped with its last reader."""
        self._registry.release(self._handle)


class Reader:
    """A node that reads another's arrangement in the step in which it is written."""

    def __init__(self, registry: Registry, arranged: Arranged, reader: str) -> None:
        self._registry = registry
        self._handle = arranged.hold(reader, CLOSED)

    def release(self) -> None:
        """Stop reading."""
        self._registry.release(self._handle)


def times_within(updates: Updates | None, lower: int, upper: int) -> bool:
    """True if every time t has lower ≤ t < upper."""
    if updates is None:
        return True
    times = updates.times
    if len(times) > _FEW:
        return bool(all_within(times, lower, upper))
    # A kernel's call costs more than looking at a few.
    for time in times.tolist():  # noqa: SIM110
        if not lower <= time < upper:
            return False
    return True
