"""The sink contract on a real Postgres."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import Sink, SinkView
from tests.contracts.sink import SinkContract, SinkHarness, Texts


class PostgresHarness:
    def __init__(self, url: str) -> None:
        self.url = url
        self.made: list[PostgresSink] = []

    def make(self) -> PostgresSink:
        self.made.append(PostgresSink("group", self.url, patience=10.0))
        return self.made[-1]

    def close(self) -> None:
        for sink in self.made:
            sink.close()

    def content(self, view: SinkView) -> Counter[Texts]:
        return self.together([view])[0]

    def together(self, views: Sequence[SinkView]) -> list[Counter[Texts]]:
        with psycopg.connect(self.url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            return [read_texts(connection, view.name, view.schema.names) for view in views]

    def marks(self) -> dict[str, tuple[str, int | None]]:
        with psycopg.connect(self.url) as connection:
            rows = connection.execute(
                "SELECT view, error, epoch, lsn FROM headrace.freshness WHERE error IS NOT NULL"
            ).fetchall()
        assert all(lsn is None for *_, lsn in rows), "the sources' positions are the group's, not this view's"
        return {view: (error, epoch) for view, error, epoch, _ in rows}

    def kill_sessions(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'headrace group'"
            )

    @contextmanager
    def lose_answer(self, sink: Sink) -> Iterator[None]:
        assert isinstance(sink, PostgresSink)
        connection = sink._connection
        assert connection is not None
        commit = connection.commit

        def commit_then_die() -> None:
            commit()
            self.kill_sessions()
            connection.execute("SELECT 1")  # finds the session dead, as a lost answer would

        connection.commit = commit_then_die  # type: ignore[method-assign]
        yield
        assert sink._connection is not connection, "the answer was to be lost"

    @contextmanager
    def lose_request(self, sink: Sink) -> Iterator[None]:
        assert isinstance(sink, PostgresSink)
        connection = sink._connection
        assert connection is not None

        def die() -> None:
            self.kill_sessions()
            connection.execute("SELECT 1")

        connection.commit = die  # type: ignore[method-assign]
        yield
        assert sink._connection is not connection, "the request was to be lost"

    @contextmanager
    def lose_claim(self, sink: Sink, happens: bool) -> Iterator[None]:
        assert isinstance(sink, PostgresSink)

        def reached(step: str) -> None:
            if step == ("postgres claimed" if happens else "postgres claim"):
                raise psycopg.OperationalError("the answer was lost")

        before, sink._reached = sink._reached, reached
        try:
            yield
        finally:
            sink._reached = before


def read_texts(
    connection: psycopg.Connection[Any], table: str, columns: Sequence[str], schema: str = "headrace"
) -> Counter[Texts]:
    """The rows of a table as the very bytes that Postgres prints."""
    statement = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(schema, table)
    )
    result = connection.execute(statement).pgresult
    assert result is not None
    found: Counter[Texts] = Counter()
    for i in range(result.ntuples):
        values = [result.get_value(i, j) for j in range(result.nfields)]
        found[tuple(None if v is None else bytes(v).decode() for v in values)] += 1
    return found


class TestPostgresSink(SinkContract):
    @pytest.fixture
    def harness(self, database: str) -> Iterator[SinkHarness]:
        made = PostgresHarness(database)
        yield made
        made.close()
