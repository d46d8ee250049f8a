"""The driver of a dataflow that runs as several workers: deals changes out, steps, gathers and publishes.

Always: what `step` makes is complete in every shard, or it raises; what outputs give is what one dataflow alone would
give, to the byte; once a worker is lost all are stopped and every call raises. A dataflow beside is driven likewise, over
other channels: once it fails it alone ends. Called by whoever would call a dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count as numbers
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from headrace.engine.batch.exchange_codec import Message, received, sent
from headrace.engine.batch.updates import Upserts
from headrace.engine.dataflow.input_buffer import Intake
from headrace.engine.errors import HeadraceError, InvariantBroken
from headrace.engine.operators.delta import Delta, concat
from headrace.engine.schema import Schema
from headrace.sidecar.execution.dataflow_host import (
    NOTHING,
    ArrangementFacts,
    Build,
    Change,
    ExchangeFacts,
    Flow,
    WorkerFacts,
)  # fmt: skip
from headrace.sidecar.execution.malloc import give_back
from headrace.sidecar.execution.workers import messages
from headrace.sidecar.execution.workers.channel import ChannelClosed, moved
from headrace.sidecar.execution.workers.failure import cause
from headrace.sidecar.execution.workers.gather import Gathered
from headrace.sidecar.execution.workers.late import LateInWorkers
from headrace.sidecar.execution.workers.liveness import Replies, Watch, answered
from headrace.sidecar.execution.workers.local_pool import LocalPool
from headrace.sidecar.execution.workers.messages import A, Command, Question
from headrace.sidecar.execution.workers.pool import Maker, WorkerLost, WorkerPool
from headrace.sidecar.execution.workers.protocol import files_in, files_out, packed, sides_in, upserts_out
from headrace.sidecar.execution.workers.shard_router import Dealer, keys_only
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.execution.workers.worker_rows import WorkerRows
from headrace.sidecar.state.batch_store import WRITES, BatchFile, Files, StoreAway
from headrace.sidecar.state.objects import Counts
from headrace.sidecar.transactions.references import HandedRuns, are_references

STILL_SECONDS = 30.0
"""A worker that neither answers nor waits for another nor uses the processor for so long is given up."""

NAMING_SECONDS = 20.0
"""How long the driver waits, once a channel is closed, to learn which process ended."""


class Workers(LateInWorkers):
    """A dataflow in several processes. `frontier`: epochs before it are complete in all. Single writer: its owner.

    `tables`, `views`: the columns of what is declared and put out there. `outputs`: by view. `number`: by which the workers
    know one that began beside another. `rows`: what the workers have decoded and keep.
    """

    def __init__(
        self, pool: WorkerPool, tables: Mapping[str, Schema], views: Mapping[str, Schema], *,
        still_seconds: float = STILL_SECONDS, frontier: int = 0, number: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(frontier)
        self.count = count = len(pool.channels)
        self.frontier = frontier
        self.number = number
        self.cpu_seconds: Sequence[float] = [0.0] * count
        self.outputs = self._gathered(views)
        self._dealers = {name: Dealer(schema, count) for name, schema in tables.items()}
        self.rows = WorkerRows(count, self._tell, self._answers)
        self._readers: list[WorkerPool] = []
        self._numbers = numbers(1)
        self._intakes = {name: Intake(name) for name in tables}
        self._crossing: dict[int, set[str]] = {}
        self._errors: list[messages.PushErrors] = []
        self._asked: Sequence[Counts] = ()
        self._exchanged: Sequence[ExchangeFacts] = ()
        self._still_seconds = still_seconds
        self._lost: HeadraceError | None = None
        self._pool = pool
        try:
            self._replies()
        except HeadraceError:
            pool.close()  # nobody else has it
            raise

    @classmethod
    def start(
        cls, count: int, task: Task, tables: Mapping[str, Schema], views: Mapping[str, Schema],
        still_seconds: float = STILL_SECONDS, maker: Maker = LocalPool,
    ) -> Workers:  # fmt: skip
        """`count` processes that do `task`, where `maker` starts them."""
        return cls(maker(count, task), tables, views, still_seconds=still_seconds)

    def _gathered(self, views: Mapping[str, Schema]) -> dict[str, Gathered]:
        return {name: Gathered(name, schema, self._snapshot) for name, schema in views.items()}

    def build(self, build: Build, views: Mapping[str, Schema]) -> None:
        """As `Flow.build`."""
        self._tell_all(messages.Build(), [packed(build)])
        self.outputs = self._gathered(views)

    def hydrating(self) -> Iterator[tuple[int, int]]:
        """As `Flow.hydrating`: all shards compute the same part, each its own of it."""
        while True:
            found = [told.at for told, _ in self._ask(messages.Hydrate())]
            parts = [at for at in found if at is not None]
            if not parts:
                return
            yield sum(done for done, _ in parts), sum(of for _, of in parts)

    def beside(self, redeclared: Mapping[str, Schema] = NOTHING) -> Callable[[], Workers]:
        """As `Flow.beside`: a thread in each worker."""
        self._check()
        number = next(self._numbers)
        begun = self._pool.beside(f"beside {number}")
        self._ask(messages.BeginBeside(number), [packed(dict(redeclared))])
        tables = {name: dealer.schema for name, dealer in self._dealers.items()} | dict(redeclared)
        return partial(
            Workers, begun(), tables, {}, still_seconds=self._still_seconds, frontier=self.frontier, number=number
        )

    def change(self, change: Change, beside: Flow | None) -> None:
        """As `Flow.change`."""
        names: Sequence[str] = ()
        if beside is not None:
            assert isinstance(beside, Workers), "it began beside this one"
            names = beside.at_rest()
        self._ask(messages.Change(None if beside is None else beside.number, names), [packed(change)])
        fresh = self._gathered(change.views)
        self.outputs = {n: self.outputs[n] if n in change.stay else o for n, o in fresh.items()}
        for table, schema in {**change.tables_new, **change.redeclared}.items():
            self._dealers[table], self._intakes[table] = Dealer(schema, self.count), Intake(table)
        for table in change.tables_gone:
            del self._dealers[table], self._intakes[table]

    def push(self, table: str, upserts: Upserts) -> None:
        """As `Flow.push`."""
        if upserts.fill_from is not None:  # values are taken along from one key to another, which the driver sees to
            upserts = self.rows_of(table, upserts)
        self._intakes[table].push(upserts, self.frontier)
        for epoch in self._dealers[table].crossing(upserts):
            self._crossing.setdefault(epoch, set()).add(table)

    def rows_of(self, table: str, upserts: Upserts) -> Upserts:
        """As `Flow.rows_of`."""
        return self.rows.of(table, upserts, self._dealers[table].schema) if are_references(upserts) else upserts

    def hand_over(self, folder: Path) -> HandedRuns:
        """As `Flow.hand_over`."""
        return self.rows.hand_over(folder)

    def take_over(self, handed: HandedRuns) -> None:
        """As `Flow.take_over`."""
        self.rows.take_over(handed)

    def begin_intake(self, name: str, reads: object) -> WorkerPool:
        """Have every worker read its part of a source: `reads`, on a thread and over a channel of that name."""
        self._check()
        begun = self._pool.beside(name)
        self._ask(messages.BeginIntake(name), [packed(reads)])
        self._readers.append(begun())
        return self._readers[-1]

    def give_up(self, why: HeadraceError) -> NoReturn:
        """A worker cannot be heard any more: stop all, and say which it was that ended first, where one did."""
        self._lost = cause(self._pool, self._pool.channels, why, NAMING_SECONDS)
        self._pool.kill()
        raise self._lost from why

    def push_errors(self, table: str, errors: Mapping[str, int], epoch: int) -> None:
        """As `Dataflow.push_errors`: they are the first shard's."""
        self._errors.append(messages.PushErrors(table, dict(errors), epoch))

    def step(self, upper: int) -> None:
        """As `Dataflow.step`. Raises WorkerLost, which names the shard, and what a worker raised."""
        self._check()
        if upper < self.frontier:
            raise InvariantBroken("a frontier went back", frontier=self.frontier, upper=upper)
        for epoch in sorted(e for e in self._crossing if e < upper):
            self._advance(epoch)
            for table in self._crossing.pop(epoch):
                self._settle(table, epoch)
        self._advance(upper)
        self._take()

    def _advance(self, upper: int) -> None:
        """Have every shard step to `upper`."""
        kept: dict[str, Upserts] = {}
        for table, intake in self._intakes.items():
            waiting = intake.take(upper)
            if waiting is not None and are_references(waiting):
                kept[table] = waiting
            elif waiting is not None:
                self._deal(table, self._dealers[table].dealt(waiting))
        if kept:
            self.rows.take_in(kept)
        self.rows.let_go()
        for errors in self._errors:
            if errors.epoch < upper:
                self._tell(0, errors)
        self._errors = [errors for errors in self._errors if errors.epoch >= upper]
        if upper > self.frontier:
            self._tell_all(messages.Step(upper))
            self.frontier = upper

    def _settle(self, table: str, epoch: int) -> None:
        """Route an epoch in which rows change shards, with what they take along."""
        waiting = self._intakes[table].take(epoch + 1)
        assert waiting is not None
        parts = [sent(keys_only(waiting))]
        schema = self._dealers[table].schema.arrow
        replies = self._ask(messages.LookUp(table), parts)
        found = concat([received(there[0], schema) for _, there in replies])
        stored = schema.empty_table().combine_chunks().to_batches() if found is None else [found.rows]
        rows = stored[0] if stored else pa.RecordBatch.from_pylist([], schema=schema)
        self._deal(table, self._dealers[table].settled(waiting, rows))

    def _deal(self, table: str, dealt: Sequence[Upserts | None]) -> None:
        for shard, part in enumerate(dealt):
            if part is not None:
                columns, parts = upserts_out(part)
                self._tell(shard, messages.Push(table, columns), parts)

    def _take(self) -> None:
        """Gather what the views emitted."""
        replies = self._ask(messages.Take())
        self.cpu_seconds = [told.cpu for told, _ in replies]
        self.told_late([told.late for told, _ in replies])
        for told, parts in replies:
            assert told.frontier == self.frontier, "a shard answered of another step"
            for k, name in enumerate(told.names):
                output = self.outputs[name]
                output.receive(Delta(*sides_in(parts[2 * k : 2 * k + 2], output.schema.arrow)))

    def _snapshot(self, view: str, as_of: int) -> Sequence[Delta]:
        """What each shard holds of a view."""
        replies = self._ask(messages.Snapshot(view, as_of))
        return [Delta(*sides_in(parts, self.outputs[view].schema.arrow)) for _, parts in replies]

    def advance_since(self, epoch: int) -> None:
        """As `Dataflow.advance_since`."""
        self._tell_all(messages.AdvanceSince(epoch))

    def exert(self, fuel: int) -> None:
        """As `Dataflow.exert`, in each shard that has nothing else to do."""
        self.rows.let_go()
        self._tell_all(messages.Exert(fuel))

    def give_back(self) -> None:
        """As `Flow.give_back`."""
        self._tell_all(messages.TrimMemory())
        give_back()

    def hold(self) -> Callable[[], Files]:
        """As `Flow.hold`: arrangements that are not whole, as a shard of them failed, are left out."""
        return partial(self._write, self.at_rest())

    def at_rest(self) -> Sequence[str]:
        """Have all shards hold their arrangements as of now, and the names of those that are whole."""
        replies = self._ask(messages.Hold())
        return sorted(frozenset.intersection(*(frozenset(told.names) for told, _ in replies)))

    def _write(self, names: Sequence[str]) -> Files:
        """Have all shards write what they hold; called on another thread. Raises CheckpointError, StoreAway, WorkerLost."""
        asides, asked = self._pool.asides, messages.Write(names, next(WRITES))
        for aside in asides:
            aside.put(messages.sent_as(asked))
        try:
            replies = [asked.answered(head) for head, _ in answered(asides)]
        except HeadraceError as why:
            found = cause(self._pool, asides, why, NAMING_SECONDS)
            raise (self._lost or found) from why  # once the driver stops them all, how they ended says nothing
        files: dict[str, list[BatchFile]] = {name: [] for name in names}
        self._asked = [Counts(*told.store) for told in replies]
        for shard, told in enumerate(replies):
            if told.away is not None:
                away = told.away
                raise StoreAway(away["what"], worker=shard, store=away["where"].get("store"), hint=away["hint"])
            for name, some in files_in(told.files or {}).items():
                files[name] += some
        return files

    def recover(self, frontier: int, files: Files, count: int) -> frozenset[str]:
        """As `Flow.recover`."""
        replies = self._ask(messages.Recover(frontier, files_out(files), count))
        self.frontier = frontier
        self.told_late([told.late for told, _ in replies])
        return frozenset.intersection(*(frozenset(told.names) for told, _ in replies))

    def facts(self) -> Mapping[str, ArrangementFacts]:
        """As `Flow.facts`."""
        told = [one for one, _ in self._ask(messages.Facts())]
        self._exchanged = [ExchangeFacts(*one.exchanged) for one in told if one.exchanged]
        shards = [one.arrangements for one in told]
        return {
            name: ArrangementFacts(
                sum(s[name][0] for s in shards), sum(s[name][1] for s in shards), readers, frozenset(views)
            )
            for name, (_, _, readers, views) in shards[0].items()
        }

    def sizes(self) -> Sequence[int]:
        """By shard: updates held in all arrangements."""
        return [sum(rows for rows, *_ in t.arrangements.values()) for t, _ in self._ask(messages.Facts())]

    def store(self) -> Counts:
        """As `Flow.store`, as of the last checkpoint."""
        return sum(self._asked, Counts())

    def exchanges(self) -> Sequence[ExchangeFacts]:
        """As `Flow.exchanges`."""
        return self._exchanged

    @property
    def slot_seconds(self) -> float:
        """As `Flow.slot_seconds`."""
        return self._pool.slot_seconds

    def workers(self) -> Sequence[WorkerFacts]:
        """The workers' processes, by shard."""
        return self._pool.members()

    @property
    def pids(self) -> Sequence[int | None]:
        """The workers' processes, by shard."""
        return [member.pid for member in self._pool.members()]

    def close(self) -> None:
        """Stop all workers; none is left. Nothing may be being written."""
        if self._lost is None:
            self._lost = WorkerLost("the workers were stopped")
        for readers in self._readers:
            readers.close()
        self._pool.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _tell_all(self, command: Command, parts: Sequence[Message] = ()) -> None:
        for shard in range(self.count):
            self._tell(shard, command, parts)
        self._written()

    def _tell(self, shard: int, said: Command | Question[A], parts: Sequence[Message] = ()) -> None:
        """Leave it to be written with what is said to all next: all are written to side by side."""
        self._check()
        self._pool.channels[shard].put(messages.sent_as(said, parts))

    def _ask(self, question: Question[A], parts: Sequence[Message] = ()) -> list[tuple[A, list[Message]]]:
        """Ask all, and their answers by shard."""
        self._check()
        for shard in range(self.count):
            self._tell(shard, question, parts)
        return self._answers(question)

    def _answers(self, question: Question[A]) -> list[tuple[A, list[Message]]]:
        """What all answer to a question that each was asked."""
        return [(question.answered(head), parts) for head, parts in self._replies()]

    def _replies(self) -> Replies:
        """One answer of each shard. Raises WorkerLost, after which all are stopped."""
        try:
            return Watch(self._pool, self._still_seconds).answers_of_all()
        except HeadraceError as error:
            self.give_up(error)

    def _written(self) -> None:
        """See that all that was said is written."""
        try:
            moved(self._pool.channels, lambda: False, lambda: None)
        except ChannelClosed as closed:
            self.give_up(closed)
