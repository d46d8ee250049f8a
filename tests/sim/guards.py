"""`python -m tests.sim.guards [NAME …]`: is every guard needed? Each is taken away alone, and the simulator must fail within
SEEDS seeds.

Always: a guard is taken away by changing the running program, never a file: a sync that the disk leaves out, a step or a check
that does nothing, two steps the other way round. Called by make and by its test.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.kafka import source as kafka_source
from headrace.connectors.kafka.readback import Readback
from headrace.connectors.kafka.sink import KafkaSink
from headrace.sidecar.delivery import sink_writer
from headrace.sidecar.epochs import reclock
from headrace.sidecar.epochs.reclock import Reclock, ReclockLog
from headrace.sidecar.runtime import recovery
from headrace.sidecar.runtime.checkpointer import Checkpointer
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.state import generation
from headrace.sidecar.state.generation import Generation
from headrace.sidecar.transactions import partial
from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.initial_snapshot import Snapshot
from headrace.sidecar.wiring import build
from tests.crash import counts
from tests.doubles.memory import MemorySink
from tests.sim.broker import Broker
from tests.sim.clients import DeadLetters
from tests.sim.database import DatabaseSink
from tests.sim.more_guards import MORE
from tests.sim.rates import Rates
from tests.sim.run import play_in
from tests.sim.world import World

SEEDS = 400
Patch = pytest.MonkeyPatch
Away = Callable[[Patch], None]
GUARDS: dict[str, Away] = {}


def guard(name: str) -> Callable[[Away], Away]:
    """`name`: what is taken away by the function."""

    def known(away: Away) -> Away:
        GUARDS[name] = away
        return away

    return known


def unsynced(name: str, what: str, of: Callable[[Path], bool]) -> None:
    """The disk leaves out the syncs of some paths. `what`: append, write or folder."""

    def away(patch: Patch) -> None:
        real = World.__init__

        def begun(world: World, *args: Any, **more: Any) -> None:
            real(world, *args, **more)
            world.disk.lazy = lambda kind, path: kind == what and of(path)

        patch.setattr(World, "__init__", begun)

    GUARDS[name] = away


unsynced("the reclock log is synced", "append", lambda p: p.name == "reclock.log")
unsynced("the reclock log's name is synced", "folder", lambda p: p.parent.name == "generations")
unsynced("a trimmed reclock log is synced", "write", lambda p: p.name == "reclock.new")
unsynced("a batch is synced", "write", lambda p: p.parent.name == "batches")
unsynced("names of batches are synced", "folder", lambda p: p.name == "batches")
unsynced("a manifest is synced", "write", lambda p: p.name == "manifest.new")
unsynced("a log that is carried over is synced", "write", lambda p: p.name == "reclock.log")
unsynced("a manifest that is carried over is synced", "write", lambda p: p.name == "manifest.json")
unsynced("generations are synced", "folder", lambda p: p.name == "generations")


def nothing(*_: Any, **__: Any) -> None:
    """A step that is left out."""


@guard("bindings are durable before a sink has them")
def _(patch: Patch) -> None:
    patch.setattr(Reclock, "settle", nothing)


@guard("a torn end of the reclock log is cut off")
def _(patch: Patch) -> None:
    from tests.sim import disk

    patch.setattr(disk._Appended, "cut", nothing)


@guard("the reclock log is followed")
def _(patch: Patch) -> None:
    real = Reclock.__init__

    def begun(self: Reclock, log: ReclockLog, frontier: int = 1) -> None:
        real(self, log, frontier)
        self._expected.clear()

    patch.setattr(Reclock, "__init__", begun)


@guard("batches are on disk before the manifest that names them")
def _(patch: Patch) -> None:
    from tests.sim.disk import View

    late: dict[Path, list[bytes]] = {}
    write, replace, exists, names = View.write, View.replace, View.exists, View.names

    def held_write(self: View, path: Path, parts: Any) -> None:
        if path.parent.name == "batches":
            late[path] = [bytes(memoryview(p)) for p in parts]
        else:
            write(self, path, parts)

    def held_replace(self: View, old: Path, new: Path) -> None:
        if old in late:
            late[new] = late.pop(old)
            return
        replace(self, old, new)
        if new.name == "manifest.json":
            for path in [p for p in late if p.parent.parent == new.parent]:
                write(self, path, late.pop(path))

    patch.setattr(View, "write", held_write)
    patch.setattr(View, "replace", held_replace)
    patch.setattr(View, "exists", lambda self, path: path in late or exists(self, path))
    patch.setattr(View, "names", lambda self, path: names(self, path))


@guard("a manifest waits for every sink")
def _(patch: Patch) -> None:
    patch.setattr(Runtime, "attached", property(lambda self: []))


@guard("offsets are committed after their manifest")
def _(patch: Patch) -> None:
    real = Checkpointer._capture

    def early(self: Checkpointer, epoch: int, sources: Any) -> Any:
        capture = real(self, epoch, sources)
        for intake in self._parts.intakes:
            if intake.name in capture.sources:
                intake.source.commit(capture.sources[intake.name].positions)
        return capture

    patch.setattr(Checkpointer, "_capture", early)


@guard("a run has a generation of its own")
def _(patch: Patch) -> None:
    real = build.take_generation

    def shared(state: Path, reached: Any, disk: Any) -> tuple[Generation, Generation | None]:
        known = [generation.open_generation(state, n, disk) for n in generation.numbers(state, disk)]
        ready = [g for g in known if disk.exists(g.ready)]
        return (ready[-1], None) if ready else real(state, reached, disk)

    patch.setattr(build, "take_generation", shared)
    patch.setattr(generation, "predecessor", nothing)


@guard("who was overtaken while it fenced its sinks gives way")
def _(patch: Patch) -> None:
    patch.setattr(generation, "check_newest", lambda fresh: generation.numbers(fresh.folder.parent.parent, fresh.disk))


@guard("state is carried over after the sinks are fenced")
def _(patch: Patch) -> None:
    take, carry = build.take_generation, generation.carry_over

    def early(state: Path, reached: Any, disk: Any) -> tuple[Generation, Generation | None]:
        fresh, previous = take(state, reached, disk)
        carry(fresh, previous, reached)
        return fresh, previous

    patch.setattr(build, "take_generation", early)
    patch.setattr(generation, "predecessor", nothing)
    patch.setattr(generation, "carry_over", nothing)


@guard("a generation that is not ready is passed over")
def _(patch: Patch) -> None:
    from tests.sim.disk import View

    real = View.exists
    patch.setattr(View, "exists", lambda self, path: path.name == "ready" or real(self, path))


@guard("a sink beyond the log is adopted")
def _(patch: Patch) -> None:
    patch.setattr(recovery, "_adopt", nothing)


@guard("the source is read committed")
def _(patch: Patch) -> None:
    patch.setitem(kafka_source._OWNED, "isolation.level", "read_uncommitted")


@guard("positions are held back for what is not whole")
def _(patch: Patch) -> None:
    patch.setattr(TransactionAssembler, "pending_positions", lambda self: {})


@guard("a transaction waits for all its events")
def _(patch: Patch) -> None:
    patch.setattr(TransactionAssembler, "_missing", lambda self, end, pending: {})
    patch.setattr(TransactionAssembler, "_is_whole", lambda self, end, pending: True)


@guard("the snapshot waits for every table")
def _(patch: Patch) -> None:
    patch.setattr(Snapshot, "missing", lambda self: {})


@guard("the snapshot waits for its end")
def _(patch: Patch) -> None:
    patch.setattr(Snapshot, "ended", property(lambda self: True, nothing), raising=False)


@guard("the end of an earlier try of the snapshot is not the last one's")
def _(patch: Patch) -> None:
    patch.setattr(Snapshot, "_is_outlived", lambda self: False)


@guard("rows of an earlier try of the snapshot are not the last one's")
def _(patch: Patch) -> None:
    patch.setattr(Snapshot, "_is_begun", lambda self, transaction: True)


@guard("repeated events count once")
def _(patch: Patch) -> None:
    patch.setattr(partial, "first_copies", lambda slices, seen: list(slices))
    patch.setattr(
        partial.PartialTransaction,
        "distinct",
        lambda self, table: sum(s.stop - s.start for s in self.slices.get(table, ())),
    )


@guard("a repeated transaction is not given again")
def _(patch: Patch) -> None:
    patch.setattr(TransactionAssembler, "_remember", nothing)
    patch.setattr(TransactionAssembler, "_pass", nothing)


@guard("transactions that the log binds are known after a restart")
def _(patch: Patch) -> None:
    patch.setattr(Reclock, "bound_transactions", lambda self, source, before: iter([(-1, -1)]))


@guard("portions are bound together")
def _(patch: Patch) -> None:
    patch.setattr(reclock, "of_one_kind", lambda stamps: [[stamp] for stamp in stamps])


@guard("a dead letter is kept before its record is passed over")
def _(patch: Patch) -> None:
    patch.setattr(DeadLetters, "keep", nothing)


@guard("a record that is passed over counts as here")
def _(patch: Patch) -> None:
    patch.setattr(TransactionAssembler, "skip", nothing)


@guard("what a sink holds is left out")
def _(patch: Patch) -> None:
    patch.setattr(sink_writer, "after", lambda changes, epoch: changes)


@guard("a write whose end is not known is looked up")
def _(patch: Patch) -> None:
    patch.setattr(DatabaseSink, "_written", lambda self, before: False)
    patch.setattr(MemorySink, "_check_owner", nothing)


@guard("the row is locked while its end is looked up")
def _(patch: Patch) -> None:
    def unlocked(self: DatabaseSink, *, force: bool) -> None:
        self.database.holder = self

    patch.setattr(DatabaseSink, "_lock", unlocked)


@guard("an older generation is fenced from the database")
def _(patch: Patch) -> None:
    patch.setattr(MemorySink, "_check_owner", nothing)


@guard("an older producer is fenced from Kafka")
def _(patch: Patch) -> None:
    patch.setattr(Broker, "_owned", lambda self, name, epoch: self.producers[name])


@guard("Kafka's frontier is read back after a lost answer")
def _(patch: Patch) -> None:
    def unread(self: KafkaSink) -> Any:
        return self._fenced()

    patch.setattr(KafkaSink, "_settled", unread)


@guard("a sink knows its own claim after a lost answer")
def _(patch: Patch) -> None:
    """In lives in which answers are lost."""

    def strange(self: KafkaSink, found: Any, held: int) -> None:
        if found is not None and found.generation > held:
            raise self._fenced_by(found, held)

    drawn = Rates.drawn
    patch.setattr(Rates, "drawn", lambda draw: replace(drawn(draw), lost=0.05))
    patch.setattr(KafkaSink, "_check_owner", strange)


@guard("a new producer follows a lost answer")
def _(patch: Patch) -> None:
    def again(self: KafkaSink) -> Any:
        found = self._read_standing()
        if found is not None:
            self._standing = found
        return self.__dict__["before"]

    def keep(self: KafkaSink) -> None:
        self.__dict__["before"], self._producer = self._producer, None

    patch.setattr(KafkaSink, "_drop", keep)
    patch.setattr(KafkaSink, "_settled", again)


@guard("commits of the sink are awaited before a topic is read back")
def _(patch: Patch) -> None:
    """In long lives in which markers are slow."""
    drawn = Rates.drawn
    patch.setattr(Rates, "drawn", lambda draw: replace(drawn(draw), slow=0.98, kill=0, power=0, zombie=0))
    real = Readback.live
    patch.setattr(Readback, "live", lambda self, topic, partitions, ends, keep: real(self, topic, partitions, {}, keep))


@guard("a view is given whole to a sink that it was not given to")
def _(patch: Patch) -> None:
    def none(self: Runtime, writer: Any, state: Any, *, everything: bool) -> None:
        self.whole[writer.name] = set()

    patch.setattr(Runtime, "reconcile", none)


unsynced("what a resync found is synced", "write", lambda p: p.parent.name == "injected")
GUARDS |= MORE


def needed(name: str, seeds: int = SEEDS, first: int = 1) -> tuple[int, bool] | None:
    """The first seed that fails without the guard, and whether in its fated life, or None. Where no life fails in which more
    befalls than faults, those of faults alone are played: the faults meet each door more often there."""
    with pytest.MonkeyPatch.context() as patch:
        GUARDS[name](patch)
        for fated in (True, False):
            for seed in range(first, first + seeds):
                if play_in(World(seed, fated=fated), Counter()) is not None:
                    return seed, fated
    return None


def main() -> None:
    """Entry point."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        here = [sys.executable, "-m", "tests.sim.guards", *sys.argv[1:]]
        os.execve(sys.executable, here, {**os.environ, "PYTHONHASHSEED": "0"})
    wanted = [n for n in GUARDS if not sys.argv[1:] or any(w in n for w in sys.argv[1:])]
    started, idle = time.monotonic(), []
    for name in wanted:
        found = needed(name)
        idle += [] if found is not None else [name]
        told = f"NOT NEEDED in {SEEDS} seeds"
        if found is not None:
            told = f"without it seed {found[0]} fails{'' if found[1] else ', of faults alone'}"
        print(f"{name}: {told}", flush=True)
    seconds = round(time.monotonic() - started)
    if wanted == list(GUARDS):
        counts.write("sim-guards", {"guards": len(wanted), "needed": len(wanted) - len(idle), "seconds": seconds})
    sys.exit(bool(idle))


if __name__ == "__main__":
    main()
