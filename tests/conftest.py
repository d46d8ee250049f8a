"""Fixtures every folder of tests may use: servers that start once a session, when first asked for, and fresh databases."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest

from sidecar.devstack.postgres import EmbeddedPostgres

FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "200"}  # a test's data need not survive a power cut


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A Postgres 18 of this session alone, with wal_level=logical; `.url(dbname)` is the superuser's."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), settings=FAST) as server:
        yield server


@pytest.fixture
def unique() -> str:
    """A name no other test uses: a lower-case word that Postgres, Kafka and file systems take unquoted."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def database(postgres: EmbeddedPostgres, unique: str) -> Iterator[str]:
    """The superuser's URL of an empty database made for this test, dropped after it."""
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f'create database "{unique}" strategy wal_log')
    yield postgres.url(unique)
    with psycopg.connect(postgres.url(), autocommit=True) as admin:
        admin.execute(f'drop database "{unique}" with (force)')
