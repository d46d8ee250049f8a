"""What the simulated sidecars are told: a configuration over the first so many shops, understood once.

Always: the state folder is on the simulated disk, and nothing that it names is reached but through a double. Called by the world.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings, load
from headrace.sidecar.wiring.project import Project, read_project
from tests.sim.shop import CUSTOMERS, GRADES, LAKE, ORDERS, PRICED, TABLES, VIEWS, WEIGHTS
from tests.sim.variants import text

GRADE = ("g", "coalesce(g, id + 10 * v)")
"""How a view asks for the orders' third column, where a row without it is to stop it, and where it may be NULL."""
STATE = Path("/sim/state")


class _Settled(Settings):
    """Settings whose state folder is on the simulated disk."""

    @property
    def state(self) -> Path:
        return STATE


_COMPILED: dict[Any, Any] = {}


class _Compiled(Project):
    """Compiles once: it is pure."""

    def compile(self, tables: Mapping[str, Schema] | None = None) -> Any:
        debezium = sum(source.type == "debezium" for source in self.settings.config.sources)
        named = {s.name: s.sql for s in self.specs}
        grade = next((g for g in GRADE if f"id, {g} as" in named.get("grades", "")), "")
        told = (debezium, "weights" in named, "prices" in named, grade)
        views = tuple((s.name, s.sql, s.key, s.sinks) for s in self.specs)
        if (told, views) not in _COMPILED:
            _COMPILED[told, views] = super().compile()
        return _COMPILED[told, views]


def _place(text: str) -> dict[str, str | int]:
    topic, partition, offset = text.split("/")
    return {"topic": topic, "partition": int(partition), "offset": int(offset)}


@cache
def project(
    sources: int,
    *,
    undecodable: str = "dead_letter",
    skip: frozenset[str] = frozenset(),
    weighed: bool = False,
    lake: bool = False,
    grade: str = "",
    schema_changes: str = "pause",
    chosen: tuple[tuple[str, int], ...] = (),
    each: bool = False,
    leaves: bool = False,
    shards: bool = False,
) -> Project:
    """The sidecar's configuration over the first so many shops. `skip`: places, "topic/partition/offset" each; `weighed`:
    customers have a third column, and a view names it; `lake`: a Spark publisher is there too; `grade`: how a view asks for the
    orders' third column, "" where they have none; `schema_changes`: what is done where that is not as declared; `chosen`: what
    else there is, each view in one of its definitions (see variants); `each`: the Kafka sink asks for each transaction;
    `leaves`: the orders are partitioned; `shards`: workers read."""
    columns = [{"name": "id", "data_type": "bigint"}, {"name": "v", "data_type": "bigint"}]
    more = {CUSTOMERS: [{"name": "w", "data_type": "bigint"}] if weighed else [],
            ORDERS: [{"name": "g", "data_type": "bigint"}] if grade else []}  # fmt: skip
    parted = {"partitions": [f"{ORDERS}_low", f"{ORDERS}_high"]} if leaves else {}
    policies = {ORDERS: {"schema_changes": schema_changes, **parted}}
    shops = list(TABLES.items())[:sources]
    body = {
        "version": 1, "name": "sim", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "http": None,
        "sources": [
            {"name": name, "type": "debezium", "topic_prefix": name, "on_undecodable": undecodable,
             "skip": [_place(s) for s in sorted(skip) if s.startswith(f"{name}.")],
             "tables": [{"name": t, "columns": columns + more.get(t, [])} | ({"key": k} if k else {}) | policies.get(t, {})
                        for t, k in tables.items()]}
            for name, tables in shops
        ] + [
            {"name": "lake", "type": "spark", "topic_prefix": "lake",
             "tables": [{"name": t, "columns": columns, "key": k} for t, k in LAKE.items()]},
        ][: int(lake)],
        "sinks": [
            {"name": "s", "type": "postgres", "url": "postgresql://nobody@127.0.0.1:9/x", "interval_ms": 0},
            {"name": "k", "type": "kafka", "topic_prefix": "out.", "granularity": "transaction" if each else "step"},
        ],
        "checkpoint": {"interval_seconds": 3},
    }  # fmt: skip
    views = (VIEWS if sources > 1 else VIEWS[: VIEWS.index("  - name: stocked")]) + (WEIGHTS if weighed else "")
    views += PRICED if lake else ""
    views += GRADES.replace("GRADE", grade) if grade else ""
    views += text(dict(chosen))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "views").mkdir()
        (Path(folder) / "views" / "v.yaml").write_text(views)
        (Path(folder) / "headrace.yaml").write_text(json.dumps(body))
        settings = load(Path(folder) / "headrace.yaml", {})
        engine = settings.config.engine.model_copy(update={"intake": "shards" if shards else "driver"})
        found = read_project(_Settled(settings.config.model_copy(update={"engine": engine}), settings.path))
    return _Compiled(found.settings, found.specs, found.tables, found.unknown)
