"""The guards that only some lives need, those whom more befalls (see fates): of later snapshots, tables that stand still, columns
that are lost, resyncs, incremental snapshots, and Spark publishers.

Always: as in guards, which takes them in. Each takes one thing away of the running program.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.connectors.formats import spark
from headrace.connectors.kafka.readback import Readback
from headrace.sidecar.epochs.each_transaction import EachTransaction
from headrace.sidecar.epochs.epoch_ranges import EpochRanges
from headrace.sidecar.epochs.reclock import Reclock
from headrace.sidecar.intake.schema_drift import EVOLVE, SchemaDrift
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.operations import dead_letter_replay, resync
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.incremental_snapshot import IncrementalSnapshot
from headrace.sidecar.transactions.initial_snapshot import Snapshot
from headrace.sidecar.transactions.model import ReplayOrder, Transaction
from headrace.sidecar.transactions.recent_key_changes import RecentKeyChanges
from headrace.sidecar.transactions.references import HandedRuns, KeptRuns
from headrace.sidecar.transactions.snapshot_barrier import SnapshotBarrier
from headrace.sidecar.transactions.suspended_tables import SuspendedTable
from tests.sim import clients, world
from tests.sim.beside import Incremental
from tests.sim.late import Late
from tests.sim.leaves import Leaves
from tests.sim.odd import Odd, drawn_odd
from tests.sim.rates import Rates
from tests.sim.readers import Keeping, Readers
from tests.sim.slots import Slots
from tests.sim.wider import Wider

Patch = pytest.MonkeyPatch


def snapshot_at_once(patch: Patch) -> None:
    def last(self: ReplayOrder, *, begun: bool) -> int | None:
        return -1 if begun and self.before_snapshot is None else self.before_snapshot

    patch.setattr(ReplayOrder, "last_before_snapshot", last)


def rows_stay(patch: Patch) -> None:
    patch.setattr(Snapshot, "replacing", Snapshot.last)


def nothing_owed(patch: Patch) -> None:
    patch.setattr(SuspendedTable, "missing", property(lambda self: 0))


def not_held(patch: Patch) -> None:
    patch.setattr(Intake, "resume_positions", lambda self, positions: positions)


def columns_forgotten(patch: Patch) -> None:
    patch.setattr(SchemaDrift, "json", lambda self: ())


def kinds_null(patch: Patch) -> None:
    patch.setattr(SchemaDrift, "_evolves", lambda self, lost: self.policies.get(lost.table) == EVOLVE)


def later_undone(patch: Patch) -> None:
    real = resync.difference

    def difference(*of: Any) -> Any:
        return real(*of[:4], None)

    patch.setattr(resync, "difference", difference)


def none_gone(patch: Patch) -> None:
    patch.setattr(IncrementalSnapshot, "_is_gone", lambda self, s: False)


def none_overtaken(patch: Patch) -> None:
    """In lives with incremental snapshots of topics that are given partitions all the time."""

    def drawn(seed: int) -> list[Incremental | Wider]:
        one, other = (random.Random(f"{name} of {seed}") for name in ("drawn_incremental", "drawn_wider"))
        return [Incremental(one, 0.7, late=False), Wider(other, 0.03)]

    patch.setattr(world, "drawn", drawn)
    patch.setattr(RecentKeyChanges, "split", lambda self, rows, lsn: ((rows,), ()))


def none_before(patch: Patch) -> None:
    """They go behind all that is whole."""
    real = TransactionAssembler._give_whole

    def give_whole(self: TransactionAssembler, out: list[Transaction]) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(IncrementalSnapshot, "ready", lambda *_: [])
            real(self, out)
        out += self._incremental.ready(self._bound_lsn, self._given_us)

    patch.setattr(TransactionAssembler, "_give_whole", give_whole)


def versions_alone(patch: Patch) -> None:
    real = spark.version_mark
    patch.setattr(spark, "version_mark", lambda *of: replace(real(*of), after={}))


def lulls_pass(patch: Patch) -> None:
    """In lives that lose slots all the time, and read a little at a time: what hides behind a lull is rare."""
    patch.setattr(clients, "FETCHED", (1, 2, 5))
    patch.setattr(world, "drawn", lambda seed: [Slots(random.Random(f"drawn_slots of {seed}"), 0.15)])
    patch.setattr(SnapshotBarrier, "holds", lambda self, end: False)


def only_odd(patch: Patch) -> None:
    """Lives with letters that are replayed, and with nothing else."""

    def drawn(seed: int) -> list[Odd]:
        draws = (random.Random(f"drawn_odd of {seed}, {n}") for n in range(99))
        return [next(odd for odd in map(drawn_odd, draws) if odd is not None)]

    patch.setattr(world, "drawn", drawn)


def nothing_passed(patch: Patch) -> None:
    only_odd(patch)
    patch.setattr(Reclock, "passed", lambda self, source: frozenset())


def copies_are_later(patch: Patch) -> None:
    only_odd(patch)
    patch.setattr(dead_letter_replay, "_later", lambda changes, own: changes.offsets > own.offsets[-1])


def lacks_at_once(patch: Patch) -> None:
    """In lives that lose slots all the time, with a broker that answers late."""

    def drawn(seed: int) -> list[Slots | Late]:
        one, other = (random.Random(f"{name} of {seed}") for name in ("drawn_slots", "drawn_late"))
        return [Slots(one, 0.15), Late(other, (3, 10), 0.0)]

    patch.setattr(world, "drawn", drawn)
    patch.setattr(SnapshotBarrier, "__bool__", lambda self: False)


def only_lost(patch: Patch) -> None:
    """Lives in which markers are lost."""
    patch.setattr(world, "drawn", lambda seed: [Late(random.Random(f"drawn_late of {seed}"), (0,), 0.02)])


def not_looked_for(patch: Patch) -> None:
    only_lost(patch)
    patch.setattr(Readback, "is_shown", lambda self, topic, end: True)


def left_alone(patch: Patch) -> None:
    only_lost(patch)
    patch.setattr(Readback, "left_open", lambda self, sizes: {})


def answered_at_once(patch: Patch) -> None:
    """In lives in which sidecars take over from others all the time."""
    only_odd(patch)
    drawn = Rates.drawn
    patch.setattr(Rates, "drawn", lambda draw: replace(drawn(draw), zombie=0.01))
    patch.setattr(Runtime, "published", lambda self, epoch: True)


def nobody_registers(patch: Patch) -> None:
    patch.setattr(EpochRanges, "register", lambda self, epoch: None)


def nobody_asks(patch: Patch) -> None:
    patch.setattr(EachTransaction, "names", lambda self: [])


def last_leaf_counts(patch: Patch) -> None:
    """In lives that have a partitioned table."""
    patch.setattr(world, "drawn", lambda _: [Leaves()])
    real = Snapshot.mark
    patch.setattr(Snapshot, "mark", lambda self, mark: real(self, replace(mark, scanned="")))


def nothing_handed_over(patch: Patch) -> None:
    """In lives in which the count of workers that read changes all the time."""
    patch.setattr(world, "drawn", lambda seed: [Readers(random.Random(f"drawn_readers of {seed}"), 0.3, 0.5, 0.3)])
    patch.setattr(Keeping, "hand_over", lambda self, folder: HandedRuns(KeptRuns(), {}))


MORE: dict[str, Callable[[Patch], None]] = {
    "what the log has comes before a later snapshot": snapshot_at_once,
    "rows that a later snapshot does not see go": rows_stay,
    "a table that stood still waits for all that it is owed": nothing_owed,
    "a table that stands still is read again from there": not_held,
    "lost columns are kept in checkpoints": columns_forgotten,
    "a column of another type is never made NULL": kinds_null,
    "what came after it stands in a resync": later_undone,
    "rows of a chunk that a TRUNCATE took away are left out": none_gone,
    "rows of a chunk that were changed since in another partition are left out": none_overtaken,
    "rows of a chunk go before what comes behind them": none_before,
    "an END behind a lull waits for what the notifications say": lulls_pass,
    "what a transaction was bound without stays out of it": nothing_passed,
    "a copy of a letter is no later word on its row": copies_are_later,
    "what waits for an answer lacks nothing": lacks_at_once,
    "a write to Kafka is done once readers see it": not_looked_for,
    "what stands open of a sink's transactions is aborted": left_alone,
    "a letter is applied once a sink has it": answered_at_once,
    "a version waits for those that its END names": versions_alone,
    "a range ends where a sink stands": nobody_registers,
    "each transaction is a range where a sink asks for it": nobody_asks,
    "the rows of every leaf count in a snapshot": last_leaf_counts,
    "workers that read hand over the rows that they keep": nothing_handed_over,
}
