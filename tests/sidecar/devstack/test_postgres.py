"""The embedded Postgres: a true server, kept data, same port, nothing left behind, clear errors."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from headrace.engine.errors import InvariantBroken
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.postgres import EmbeddedPostgres


def test_the_fixture_serves_logical_decoding_in_a_fresh_database(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as client:
        assert client.execute("show wal_level").fetchone() == ("logical",)
        assert client.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)
        assert client.execute("select pg_get_userbyid(datdba) from pg_database").fetchone() == ("postgres",)
        client.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
        client.execute("select pg_drop_replication_slot('s')")


def test_each_database_is_another(database: str, postgres: EmbeddedPostgres) -> None:
    assert database != postgres.url()
    assert database.startswith("postgresql://postgres:")


def test_a_password_is_asked_for(postgres: EmbeddedPostgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(postgres.url(user="postgres", password="wrong"))


def test_a_restart_keeps_port_password_and_rows(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as server:
        first = server.url()
        with psycopg.connect(first) as client:
            client.execute("create table t as select 42 as answer")
    with EmbeddedPostgres(tmp_path) as server:
        assert server.url() == first
        with psycopg.connect(first) as client:
            assert client.execute("select answer from t").fetchone() == (42,)


def test_a_kill_is_recovered_from(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path).start()
    with psycopg.connect(server.url()) as client:
        client.execute("create table t as select 1 as one")
    assert server.child is not None
    server.child.kill()
    server.start()
    with psycopg.connect(server.url()) as client:
        assert client.execute("select one from t").fetchone() == (1,)
    server.stop()


def test_a_server_that_cannot_start_quotes_its_log(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, settings={"wal_level": "nonsense"})
    with pytest.raises(DevstackError, match='invalid value for parameter "wal_level"'):
        server.start()


def test_only_the_main_thread_may_start_one(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    def start() -> None:
        try:
            EmbeddedPostgres(tmp_path).start()
        except InvariantBroken as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(raised) == 1
