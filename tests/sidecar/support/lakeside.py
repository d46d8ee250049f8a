"""A whole sidecar in one process over a Spark publisher: topics, sink and command log in memory; files of a load without Spark.

`states` is the naive twin: by version, what each table held. A version is of one table or of several, and its ENDs name the last
version of each table, as those of a publisher with a state folder do.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.commands import MemoryCommands
from headrace.connectors.commit_place import Version
from headrace.connectors.spark.envelope import Stamp
from headrace.sidecar.config.config import load
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.jobs import BackgroundJobs
from headrace.sidecar.execution.table_traces import table_traces
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.lake.runs import Runs
from headrace.sidecar.operations.table_fill import TableFill, loaded_rows
from headrace.sidecar.state.batch_store import WRITES
from headrace.sidecar.wiring import build as wiring
from headrace.sidecar.wiring import intakes, shard_intakes, topic_reading
from headrace.sidecar.wiring.build import Running, build
from headrace.sidecar.wiring.project import Project, read_project
from headrace.sidecar.wiring.run_states import clear_load_place, load_place
from tests.doubles.memory import MemoryLog, MemorySink, MemorySource, MemoryStore
from tests.sidecar.control.busy import turning
from tests.sidecar.execution.workers.threads import Threads

A, B, C = "public.a", "public.b", "public.c"
Rows = Mapping[int, int]
VIEWS = {
    A: "  - {name: va, key: [id], sinks: [s], sql: 'select id, v from public.a'}\n",
    B: "  - {name: vb, key: [id], sinks: [s], sql: 'select id, v from public.b'}\n",
    C: "  - {name: vc, key: [id], sinks: [s], sql: 'select id, v from public.c'}\n",
}
BOTH = (
    "  - {name: both, key: [id], sinks: [s], "
    "sql: 'select a.id, a.v, b.v as w from public.a a left join public.b b on b.id = a.id'}\n"
)
PARTITIONS = 2


class Lakeside:
    """`declared`: source → its tables, as headrace.yaml has them now, the source's name being its prefix; `read`: the tables of
    which the folder has a view; `both`: it also has one that joins A and B."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, *, every_turn: bool = False, workers: int = 1, intake: str = "driver"
    ) -> None:  # fmt: skip
        self.folder, self.log, self.store = folder, MemoryLog(), MemoryStore(keep_history=True)
        self.commands, self.every_turn, self.workers, self.intake = MemoryCommands(), every_turn, workers, intake
        self.declared: dict[str, list[str]] = {"lake": [A]}
        self.read, self.both = [A], False
        self.state: dict[str, dict[int, int]] = {A: {}, B: {}, C: {}}
        self.states: dict[int, dict[str, dict[int, int]]] = {}
        self.last: dict[str, dict[str, int]] = {}
        self.running: Running | None = None
        for module in (intakes, topic_reading, shard_intakes):
            patch.setattr(
                module,
                "make_source",
                lambda _s, c, f, **mine: MemorySource(self.log, wants=f.wants, name=c.name, **mine),
            )
        patch.setattr(wiring, "make_pool", lambda *_: Threads)
        patch.setattr(wiring, "make_commands", lambda _: self.commands)
        patch.setattr(wiring, "make_sink", lambda _s, c, *_: MemorySink(c.name, self.store))
        (folder / "views").mkdir()

    def publish(
        self, version: int, rows: Mapping[str, Rows], *, prefix: str = "lake", attempt: int = 1, ends: bool = True
    ) -> None:  # fmt: skip
        """These tables hold `rows` from this version on."""
        last = self.last.setdefault(prefix, {})
        stamp = Stamp(prefix, version, attempt, 1_000_000 + version, dict(last))
        sent: dict[tuple[str, int], list[tuple[bytes, bytes]]] = {}
        for table, after in rows.items():
            before, (head, middle, tail) = self.state[table], stamp.around(table)
            for p in range(PARTITIONS):
                sent[table, p] = []
            for id_ in sorted(before.keys() | after.keys()):
                if before.get(id_) == after.get(id_):
                    continue
                op = "d" if id_ not in after else "u" if id_ in before else "c"
                image = "null" if id_ not in after else json.dumps({"id": id_, "v": after[id_]})
                key, value = json.dumps({"id": id_}).encode(), f"{head}{image}{middle}{op}{tail}".encode()
                sent[table, id_ % PARTITIONS].append((key, value))
        for (table, p), records in sent.items():
            self.make(prefix, table)
            for key, value in records:
                self.log.append(f"{prefix}.{table}", value, key=key, partition=p)
        for (table, p), records in sent.items() if ends else ():
            end = {"headrace": "end", "version": version, "attempt": attempt, "count": len(records), "partition": p,
                   "partitions": PARTITIONS, "table": table, "tables": sorted(rows), "after": dict(last),
                   "ts_us": stamp.at_us}  # fmt: skip
            key = json.dumps({"headrace.end": version}, separators=(",", ":")).encode()
            self.log.append(f"{prefix}.{table}", json.dumps(end).encode(), key=key, partition=p)
        if ends:
            self.state |= {t: dict(r) for t, r in rows.items()}
            self.states[version] = {t: dict(r) for t, r in self.state.items()}
            last.update(dict.fromkeys(rows, version))

    def make(self, prefix: str, table: str) -> None:
        """The topic of a table is there."""
        if (f"{prefix}.{table}", 0) not in self.log.partitions:
            self.log.create(f"{prefix}.{table}", PARTITIONS)

    def configure(self) -> None:
        """The files say what is declared, and the folder has the views that are wanted."""
        columns = [{"name": "id", "data_type": "bigint"}, {"name": "v", "data_type": "bigint"}]
        sources = [
            {"name": name, "type": "spark", "topic_prefix": name,
             "tables": [{"name": t, "key": ["id"], "columns": columns} for t in tables]}
            for name, tables in self.declared.items()
        ]  # fmt: skip
        body = {
            "version": 1, "name": "lakeside", "state": "state", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "http": None,
            "sources": sources, "sinks": [{"name": "s", "type": "postgres", "url": "postgresql://nobody@127.0.0.1:9/x"}],
            "checkpoint": {"interval_seconds": 1e-6 if self.every_turn else 1e6},
            "engine": {"workers": self.workers, "intake": self.intake},
        }  # fmt: skip
        (self.folder / "headrace.yaml").write_text(json.dumps(body))
        views = "".join(VIEWS[t] for t in self.read) + (BOTH if self.both else "")
        (self.folder / "views" / "v.yaml").write_text(f"version: 1\nviews:\n{views}")

    @property
    def settings(self) -> Any:
        return load(self.folder / "headrace.yaml", {})

    def start(self, project: Project | None = None) -> None:
        if project is None:
            self.configure()
        self.running = build(project or read_project(self.settings))
        running = self.running
        self.changing = ViewChanger(running)
        self.jobs = BackgroundJobs(running.runtime, running.settings, now=lambda: running.settings)

    def turn(self, count: int = 1) -> None:
        assert self.running is not None
        for _ in range(count):
            if self.intake == "shards":
                self.hear()
            self.running.runtime.turn(0.0)
            for writer in self.running.runtime.parts.writers:
                assert writer.drain(10)

    def hear(self) -> None:
        """Take in all that the topics have, which workers read."""
        assert self.running is not None
        until = time.monotonic() + 20
        while not all(map(self.is_heard, self.running.runtime.parts.intakes)):
            assert time.monotonic() < until, "the workers do not read all"
            self.running.runtime.poll(0.005)

    def is_heard(self, intake: Intake) -> bool:
        """Whether all that a source has was handed out."""
        here = intake.source.positions()
        logs = ((place, log) for place, log in self.log.partitions.items() if intake.format.wants(place[0]))
        return all(here.get(topic, {}).get(p, 0) >= log.stable for (topic, p), log in logs)

    def meanwhile(self, work: Callable[[], Any], busy: Callable[[], None] = lambda: None) -> Any:
        """Do `work` on a thread while the loop turns and `busy` is done between; its result, or what it raised."""

        def turn() -> None:
            busy()
            self.turn()

        return turning(work, turn)

    def files(self, table: str, rows: Rows) -> list[Any]:
        """What the tasks of a load would have written."""
        schema = read_project(self.settings).tables[table]
        (_, layout), _ = table_traces(table, schema)
        batch = pa.RecordBatch.from_pydict({"id": list(rows), "v": list(rows.values())}, schema=schema.arrow)
        return list(Runs(table, schema, layout, load_place(self.settings), 1, next(WRITES)).fill([batch]).files)

    def begin_load(
        self, tables: Mapping[str, Rows], version: int | None, busy: Callable[[], None] = lambda: None
    ) -> tuple[dict[str, int], dict[str, list[Any]], dict[str, TableFill], list[Any]]:  # fmt: skip
        """As `headrace load` does it, up to where the tables are taken in: the versions, the files, who waits, and what came."""
        self.configure()
        versions = self.meanwhile(lambda: self.changing.versions(dict.fromkeys(tables, version)), busy)
        clear_load_place(self.settings)
        files = {table: self.files(table, rows) for table, rows in tables.items()}
        told: list[Any] = []
        fills = {table: self.jobs.fill(table, told.append) for table in tables}
        try:
            self.meanwhile(lambda: self.changing.apply(drop=False, filled=versions), busy)
        except BaseException:
            for fill in fills.values():
                fill.leave()
            self.turn()
            raise
        return versions, files, fills, told

    def load(
        self, tables: Mapping[str, Rows], version: int | None, busy: Callable[[], None] = lambda: None
    ) -> Sequence[Any]:  # fmt: skip
        """All of it; what the jobs told."""
        versions, files, _, told = self.begin_load(tables, version, busy)
        for table, some in files.items():
            rows = partial(loaded_rows, load_place(self.settings), table, some)
            self.jobs.filled(table, Version(versions[table]), rows)
        until = time.monotonic() + 60
        while len(told) < len(tables):
            assert time.monotonic() < until, "the rows are not taken in"
            busy()
            self.turn()
        clear_load_place(self.settings)
        return told

    def end(self, *, drained: bool = False) -> None:
        """Stop; unless `drained`, as a kill would."""
        assert self.running is not None
        if drained:
            self.running.runtime.drain()
        self.jobs.close()
        running, self.running = self.running, None
        running.close()

    def close(self) -> None:
        if self.running is not None:
            self.end()

    @property
    def unproven(self) -> set[str]:
        assert self.running is not None
        return set(self.running.runtime.parts.commands.open)

    def held(self, view: str) -> Counter[Any]:
        return self.store.rows[view]

    def check(self) -> None:
        """Each view holds what SQL answers."""
        for table in self.read:
            assert self.held(f"v{table[-1]}") == Counter(self.state[table].items()), table
        if self.both:
            assert self.held("both") == joined(self.state)


def joined(state: Mapping[str, Rows]) -> Counter[Any]:
    """What `both` is over these rows."""
    return Counter((id_, v, state[B].get(id_)) for id_, v in state[A].items())
