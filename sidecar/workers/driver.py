"""The driver of a dataflow that runs as several workers: deals changes out, steps, gathers and publishes.

Always: what `step` gives is complete in every shard, or it raises; it is what one worker alone would give, to the byte;
once a worker is lost all are stopped and every call raises. Called by whoever would call `Dataflow`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.batch.batch import DiffOverflow
from engine.batch.layout import layout_of
from engine.batch.updates import Updates, Upserts
from engine.batch.wire import Message, received, sent
from engine.dataflow.exchange import ShardFailed
from engine.dataflow.intake import Intake
from engine.dataflow.nodes import OVERFLOWED, overflowed
from engine.dataflow.output import canonical
from engine.errors import HeadraceError, InvariantBroken
from engine.operators.delta import Delta, concat
from engine.operators.expressions.columns import MESSAGE
from engine.schema import Schema
from sidecar.workers.channel import ChannelClosed, moved
from sidecar.workers.crew import Crew, WorkerLost
from sidecar.workers.dealing import Dealer, keys_only
from sidecar.workers.messages import Head, message, sides_in, upserts_out
from sidecar.workers.serving import Build
from sidecar.workers.watch import Watch

STILL_SECONDS = 30.0
"""A worker that neither answers nor waits for another nor uses the processor for so long is given up."""

NAMING_SECONDS = 20.0
"""How long the driver waits, once a channel is closed, to learn which process ended."""

CONSEQUENCES = (ChannelClosed.code, ShardFailed.code)
"""Of the errors that a worker tells, those that another's end or failure brought about."""

Sides = tuple[Updates, Updates]
Replies = Sequence[tuple[dict[str, Any], list[Message]]]


class Workers:
    """A dataflow in `count` processes. `frontier`: epochs before it are complete in all. Single writer: its owner.

    `tables`, `views`: the columns of what `build` declares and puts out.
    """

    def __init__(
        self, count: int, build: Build, tables: Mapping[str, Schema], views: Mapping[str, Schema], *,
        still_seconds: float = STILL_SECONDS, crew: Crew | None = None,
    ) -> None:  # fmt: skip
        self.count = count
        self.frontier = 0
        self.cpu_seconds: Sequence[float] = [0.0] * count
        self._views = dict(views)
        self._dealers = {name: Dealer(schema, count) for name, schema in tables.items()}
        self._intakes = {name: Intake(name) for name in tables}
        self._crossing: dict[int, set[str]] = {}
        self._still_seconds = still_seconds
        self._lost: HeadraceError | None = None
        self._crew = crew or Crew(count, build)
        self._replies()

    def push(self, table: str, upserts: Upserts) -> None:
        """As `Dataflow.push`."""
        self._intakes[table].push(upserts, self.frontier)
        for epoch in self._dealers[table].crossing(upserts):
            self._crossing.setdefault(epoch, set()).add(table)

    def push_errors(self, table: str, errors: Mapping[str, int], epoch: int) -> None:
        """As `Dataflow.push_errors`: they are the first shard's."""
        self._tell(0, {"do": "push_errors", "table": table, "errors": dict(errors), "epoch": epoch})

    def step(self, upper: int) -> Mapping[str, Sides]:
        """As `Dataflow.step`, and (rows, errors) of each view that changed, as its output's `take` would give them.

        Raises WorkerLost, which names the shard, and what a worker raised.
        """
        self._check()
        if upper < self.frontier:
            raise InvariantBroken("a frontier went back", frontier=self.frontier, upper=upper)
        for epoch in sorted(e for e in self._crossing if e < upper):
            self._advance(epoch)
            for table in self._crossing.pop(epoch):
                self._settle(table, epoch)
        self._advance(upper)
        return self._taken()

    def _advance(self, upper: int) -> None:
        """Have every shard step to `upper`."""
        for table, intake in self._intakes.items():
            waiting = intake.take(upper)
            if waiting is not None:
                self._deal(table, self._dealers[table].dealt(waiting))
        if upper > self.frontier:
            self._tell_all({"do": "step", "upper": upper})
            self.frontier = upper

    def _settle(self, table: str, epoch: int) -> None:
        """Deal out an epoch in which rows change shards, with what they take along."""
        waiting = self._intakes[table].take(epoch + 1)
        assert waiting is not None
        parts = [sent(keys_only(waiting))]
        schema = self._dealers[table].schema.arrow
        replies = self._ask({"do": "look_up", "table": table}, parts)
        found = concat([received(there[0], schema) for _, there in replies])
        stored = schema.empty_table().combine_chunks().to_batches() if found is None else [found.rows]
        rows = stored[0] if stored else pa.RecordBatch.from_pylist([], schema=schema)
        self._deal(table, self._dealers[table].settled(waiting, rows))

    def _deal(self, table: str, dealt: Sequence[Upserts | None]) -> None:
        for shard, part in enumerate(dealt):
            if part is not None:
                columns, parts = upserts_out(part)
                self._tell(shard, {"do": "push", "table": table, "columns": columns}, parts)

    def _taken(self) -> Mapping[str, Sides]:
        found: dict[str, list[Delta]] = {}
        replies = self._ask({"do": "take"})
        self.cpu_seconds = [float(head["cpu"]) for head, _ in replies]
        for head, parts in replies:
            assert head["frontier"] == self.frontier, "a shard answered of another step"
            for k, name in enumerate(head["names"]):
                sides = sides_in(parts[2 * k : 2 * k + 2], self._views[name].arrow)
                found.setdefault(name, []).append(Delta(*sides))
        return {name: self._whole(name, deltas) for name, deltas in found.items()}

    def snapshot(self, view: str, as_of: int) -> Sides:
        """As `Output.snapshot`."""
        replies = self._ask({"do": "snapshot", "view": view, "as_of": as_of})
        return self._whole(view, [Delta(*sides_in(parts, self._views[view].arrow)) for _, parts in replies])

    def _whole(self, view: str, deltas: Sequence[Delta]) -> Sides:
        """What the shards gave, as one: equal rows added up, in the canonical order."""
        layout = layout_of(self._views[view], ())
        rows, errors = concat([d.rows for d in deltas]), concat([d.errors for d in deltas])
        try:
            found = canonical(Delta(rows, errors), layout)
        except DiffOverflow:
            last = max(int(u.times.max()) for u in (rows, errors) if u is not None)
            found = canonical(Delta(None, overflowed(last)), layout)
        return found[0], _said_once(found[1])

    def advance_since(self, epoch: int) -> None:
        """As `Dataflow.advance_since`."""
        self._tell_all({"do": "since", "epoch": epoch})

    def exert(self, fuel: int) -> None:
        """As `Dataflow.exert`, in each shard."""
        self._tell_all({"do": "exert", "fuel": fuel})

    def arrangements(self) -> Sequence[Mapping[str, tuple[int, int]]]:
        """By shard: updates and bytes of each arrangement, by its name."""
        return [{n: (a, b) for n, (a, b) in head["arrangements"].items()} for head, _ in self._ask({"do": "facts"})]

    @property
    def pids(self) -> Sequence[int | None]:
        """The workers' processes, by shard."""
        return [process.pid for process in self._crew.processes]

    def close(self) -> None:
        """Stop all workers; none is left."""
        if self._lost is None:
            self._lost = WorkerLost("the workers were stopped")
        self._crew.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _tell_all(self, head: Head, parts: Sequence[Message] = ()) -> None:
        for shard in range(self.count):
            self._tell(shard, head, parts)
        self._written()

    def _tell(self, shard: int, head: Head, parts: Sequence[Message] = ()) -> None:
        """Leave it to be written with what is said to all next: all are written to side by side."""
        self._check()
        self._crew.channels[shard].put(message(head, parts))

    def _ask(self, head: Head, parts: Sequence[Message] = ()) -> Replies:
        """Say it to all, and their answers by shard."""
        self._check()
        for shard in range(self.count):
            self._tell(shard, head, parts)
        return self._replies()

    def _replies(self) -> Replies:
        """One answer of each shard. Raises WorkerLost, after which all are stopped."""
        watch = Watch(self._crew, self._still_seconds)
        try:
            moved(self._crew.channels, lambda: watch.misses(self._crew.channels), watch.look)
        except ChannelClosed as closed:
            self._give_up(watch.told or closed)
        except WorkerLost as lost:
            self._give_up(lost)
        if watch.told is not None:
            self._give_up(watch.told)
        return [watch.answers[shard] for shard in range(self.count)]

    def _written(self) -> None:
        """See that all that was said is written."""
        try:
            moved(self._crew.channels, lambda: False, lambda: None)
        except ChannelClosed as closed:
            self._give_up(closed)

    def _give_up(self, why: HeadraceError) -> NoReturn:
        """Stop all, and say which worker it was that ended first, where one did."""
        if why.code in CONSEQUENCES and not isinstance(why, WorkerLost):
            died = self._crew.died_first(NAMING_SECONDS)
            if died is not None:
                self._lost = self._crew.lost(died, "a worker died")
        self._lost = self._lost or why
        self._crew.kill()
        raise self._lost from why


def _said_once(errors: Updates) -> Updates:
    """A node that failed says so in each shard in which it did: once is enough."""
    same = pc.equal(errors.rows.column(0), pa.scalar(OVERFLOWED, MESSAGE)).to_numpy(zero_copy_only=False)
    return Updates(errors.rows, errors.times, np.where(same, 1, errors.diffs)) if same.any() else errors
