"""A sidecar over sources of any shape on real servers: databases with Debezium connectors, a Postgres sink and a Kafka one.

Always: each source's tables are declared as Postgres itself describes them; what a view must hold is what its source answers to
the same SQL once the sink has passed the source's last commit. What was made on shared servers is taken away again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config, slot_name
from headrace.sidecar.setup.introspection import reflect
from tests.sidecar.support import databases
from tests.sidecar.support.process import Sidecar, wait


@dataclass
class Source:
    """A database and its connector. `name`: of the source, the topics' prefix and the connector."""

    name: str
    url: str
    address: tuple[str, int]
    tables: list[dict[str, Any]]
    config: dict[str, str]

    @property
    def slot(self) -> str:
        """Of the connector; its publication has the same name."""
        return slot_name(self.name)

    @property
    def dbname(self) -> str:
        return str(psycopg.conninfo.conninfo_to_dict(self.url)["dbname"])

    def run(self, *statements: str) -> None:
        """Each is a transaction."""
        with psycopg.connect(self.url, autocommit=True) as db:
            for statement in statements:
                db.execute(statement)

    def together(self, *statements: str) -> None:
        """All are one transaction."""
        with psycopg.connect(self.url) as db:
            for statement in statements:
                db.execute(statement)


class Real(Sidecar):
    """`name` begins the names of all that it makes."""

    def __init__(self, stack: Any, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.stack, self.name = stack, name
        self.sources: dict[str, Source] = {}
        self.sink_url = ""
        self._made: list[tuple[Any, str]] = []

    def database(self, server: Any, name: str) -> str:
        """The URL of a new database, which goes with the test."""
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(f'create database "{name}" strategy wal_log')
        self._made.append((server, name))
        self.canary.watch(server.url(name))
        return str(server.url(name))

    def source(
        self, name: str, ddl: Sequence[str], *, server: Any = None, address: tuple[str, int] | None = None,
        tuning: Tuning | None = None, overrides: Mapping[str, str] | None = None,
    ) -> Source:  # fmt: skip
        """A database with these tables and a connector that runs. `server`: of the stack unless given."""
        url = self.database(server or self.stack.postgres, name)
        with psycopg.connect(url, autocommit=True) as db:
            for statement in (*ddl, *HEARTBEAT_DDL):
                db.execute(statement)
        found = [t for t in reflect(url).tables if not t.name.startswith("headrace.")]
        tables = [
            {"name": t.name, **({"key": list(t.key)} if t.key else {}),
             **({"partitions": list(t.partitions)} if t.partitions else {}),
             "columns": [{"name": c.name, "data_type": c.data_type, "nullable": c.nullable,
                          **({"labels": list(c.labels)} if c.labels else {})} for c in t.columns]}
            for t in found
        ]  # fmt: skip
        host, port = address or self.stack.postgres_address
        facts = psycopg.conninfo.conninfo_to_dict(url)
        connection = Connection(host, port, str(facts["user"]), name, str(facts["password"]))
        tuned = Tuning(**{**asdict(tuning or Tuning()), "poll_ms": 10, "heartbeat_ms": 300})
        captured = [leaf for t in found for leaf in (t.partitions or (t.name,))]
        config = connector_config(name, connection, captured, tuning=tuned, overrides=overrides)
        made = self.sources[name] = Source(name, url, (host, port), tables, config)
        register(self.stack.connect.url, name, config)
        return made

    def configure(
        self, views: Mapping[str, str], *, of_source: Mapping[str, Any] | None = None, **changes: Any
    ) -> None:
        """Views by name, each its SQL, all of them in both sinks."""
        folder = self.folder / "views"
        folder.mkdir(exist_ok=True)
        self.declare(views)
        if not self.sink_url:
            self.sink_url = self.database(self.stack.postgres, f"{self.name}_sink")
        settings = {"type": "debezium", "time_precision_mode": "microseconds", **(of_source or {})}
        body = {
            "version": 1, "name": self.name, "kafka": {"bootstrap.servers": self.stack.kafka.bootstrap},
            "sources": [{"name": s.name, "topic_prefix": s.name, "tables": s.tables, **settings}
                        for s in self.sources.values()],
            "sinks": [
                {"name": "warehouse", "type": "postgres", "url": self.sink_url, "schema": "headrace"},
                {"name": "bus", "type": "kafka", "topic_prefix": f"{self.name}.views."},
            ],
            "http": self.http, "checkpoint": {"interval_seconds": 0.5}, **changes,
        }  # fmt: skip
        self.config.write_text(json.dumps(body))

    def declare(self, views: Mapping[str, str]) -> None:
        """The folder of views has these."""
        each = [{"name": n, "sinks": ["warehouse", "bus"], "sql": text} for n, text in views.items()]
        (self.folder / "views" / "v.yaml").write_text(json.dumps({"version": 1, "views": each}))

    def passed(self, source: Source) -> None:
        """Wait until the sink has passed all that the source has committed so far."""
        with psycopg.connect(source.url, autocommit=True) as db:
            found = db.execute("select pg_current_wal_insert_lsn()").fetchone()
        assert found is not None, "an aggregate has a row"
        with psycopg.connect(self.sink_url, autocommit=True) as sink:
            at = "select coalesce((sources -> %s ->> 'lsn')::pg_lsn >= %s, false) from headrace.frontier"

            def there() -> bool:
                row = sink.execute(at, (source.name, found[0])).fetchone()
                return row is not None and bool(row[0])

            self.until(
                there, f"the sink has passed {found[0]} of {source.name}: {(self.get('/status') or b'')[:2000]!r}"
            )

    def equal(self, source: Source, views: Mapping[str, str], **others: str) -> None:
        """Each view holds what the source answers to its SQL, or to that of `others`."""
        self.passed(source)
        for name, text in views.items():
            wanted, columns = self.answer(source.url, others.get(name, text))
            held, _ = self.answer(self.sink_url, f"select {', '.join(columns)} from headrace.{name}")
            assert held == wanted, (name, held - wanted, wanted - held)

    @staticmethod
    def answer(url: str, text: str) -> tuple[Counter[Any], list[str]]:
        """The rows of a SELECT, and its columns."""
        with psycopg.connect(url) as db, db.cursor() as cursor:
            cursor.execute(text)
            return Counter(cursor.fetchall()), [f'"{c.name}"' for c in cursor.description or ()]

    def pause(self, source: Source) -> None:
        """Stop the connector, keeping its offsets, and wait until its slot is let go of."""
        self.stack.connect.request("PUT", f"/connectors/{source.name}/stop")
        wait(lambda: not self.slot_active(source), f"{source.name} lets go of its slot")

    def resume(self, source: Source) -> None:
        """Start it again; it need not come to run."""
        self.stack.connect.request("PUT", f"/connectors/{source.name}/resume")

    def slot_active(self, source: Source) -> bool:
        with psycopg.connect(source.url, autocommit=True) as db:
            found = db.execute(
                "select active from pg_replication_slots where slot_name = %s", (source.slot,)
            ).fetchone()
        return found is not None and bool(found[0])

    def close(self) -> None:
        """End it, its connectors, slots and databases."""
        self.end()
        for source in self.sources.values():
            self.stack.connect.delete(source.name)
        for server, name in self._made:
            with psycopg.connect(server.url(), autocommit=True) as admin:
                databases.drop(admin, name)
        assert self.canary.told == [], "a server's password was seen"


@contextmanager
def real(stack: Any, folder: Path, name: str) -> Iterator[Real]:
    """One that is taken down again."""
    made = Real(stack, folder, name)
    try:
        yield made
    finally:
        made.close()
