"""A connector of its own for a peer that reads Debezium's records with their schemas alone, while the other one pauses.

Always: its topics hold the whole snapshot once the peer begins, and it is gone when the peer has ended. Nulls come as the words
of `WORDS`: the peer loses rows that hold a null. Called by `freshness_contest`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition
from psycopg import sql

from examples.demo import shop
from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import Connection, Tuning, connector_config

WORDS = {("customers", "city"): "(unknown)", ("payments", "method"): "(none)"}
"""Of a nullable column that the contest's views read, what they put in the place of a null."""


class Place(Protocol):
    """Where the contest takes place: see `bench_freshness.Bench`."""

    name: str
    source_url: str
    stack: Any


@contextmanager
def records_with_schemas(
    bench: Place, prefix: str, chosen: argparse.Namespace, patience: float
) -> Iterator[None]:  # fmt: skip
    """The contest's tables also under the topic prefix `prefix`, by a connector that sends schemas; the other one pauses."""
    host, port = bench.stack.postgres_address
    facts = psycopg.conninfo.conninfo_to_dict(bench.source_url)
    login = Connection(host, port, str(facts["user"]), str(facts["dbname"]), str(facts.get("password", "")))
    tuning = Tuning(poll_ms=chosen.poll_ms, linger_ms=chosen.linger_ms, schemas=True)
    connect = bench.stack.connect
    connect.request("PUT", f"/connectors/{bench.name}/pause")
    defaults = {"value.converter.replace.null.with.default": "true"}
    try:
        _set_defaults(bench.source_url, WORDS)
        register(connect.url, prefix, connector_config(prefix, login, shop.TABLES, tuning=tuning, overrides=defaults))
        wait_for_snapshot(bench, prefix, patience)
        yield
    finally:
        connect.delete(prefix)
        _set_defaults(bench.source_url, dict.fromkeys(WORDS))
        connect.request("PUT", f"/connectors/{bench.name}/resume")


def wait_for_snapshot(bench: Place, prefix: str, patience: float) -> None:
    """Until the topics under `prefix` hold every row of the largest table."""
    with psycopg.connect(bench.source_url, autocommit=True) as source:
        counted = source.execute("select count(*) from order_lines").fetchone()
    assert counted is not None, "an aggregate gives one row"
    consumer = Consumer({"bootstrap.servers": bench.stack.kafka.bootstrap, "group.id": prefix})
    lines = TopicPartition(f"{prefix}.public.order_lines", 0)
    began = time.monotonic()
    while _end(consumer, lines) < counted[0]:
        assert time.monotonic() - began < patience, "the connector does not take its snapshot"
        time.sleep(0.2)
    consumer.close()


def _set_defaults(url: str, words: Mapping[tuple[str, str], str | None]) -> None:
    """Defaults of columns, which the connector writes where a row holds a null; None: none."""
    with psycopg.connect(url, autocommit=True) as db:
        for (table, column), word in words.items():
            db.execute(
                sql.SQL("alter table {} alter column {} set default {}").format(
                    sql.Identifier(table), sql.Identifier(column), sql.Literal(word)
                )
            )


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """Where a partition ends; 0 while it is not there."""
    with suppress(KafkaException):
        return int(consumer.get_watermark_offsets(place, timeout=5)[1])
    return 0
