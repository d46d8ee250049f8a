"""Fixtures every folder of tests may use: servers that start once a session, when first asked for, and fresh databases.

Tests that use a server carry the marker `servers`, set here for those that use these fixtures. Where a container engine
answers, `stack` is the compose file's; elsewhere it is the embedded one: the same tests run on both.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.sidecar.devstack.cache import cache_folder
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.devstack.stack import Stack
from tests.canary import Canary
from tests.containers import ContainerStack, engine_answers, wait_for_compose
from tests.sidecar.support import databases

# before numba is imported anywhere: the machine code that `make kernels` has cached
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))
os.environ.setdefault("NUMBA_CPU_NAME", "generic")

# a test's data need not survive a power cut
FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}
SERVER_FIXTURES = {"postgres", "database", "stack", "kafka"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses a server, so that `-m 'not servers'` leaves it out, and as a proof what runs on Spark's workers too."""
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.servers)
        if "spark_cluster" in getattr(item, "fixturenames", ()) or "[spark" in item.name:
            item.add_marker(pytest.mark.spark)
        if re.search(r"[\[-]spark\b", item.name):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session", autouse=True)
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    """The servers' passwords are in no error, log, checkpoint or answer of the whole session."""
    made = Canary()
    with made.looking():
        yield made
    made.look_at_files(tmp_path_factory.getbasetemp())
    assert made.told == [], "a server's password was seen"


@pytest.fixture(scope="session", autouse=True)
def one_name() -> Iterator[None]:
    """From the top of the repository `engine` imports as well as `headrace.engine`, as a module of its own: nobody does."""
    yield
    twice = {"engine", "views", "connectors", "sidecar"} & sys.modules.keys()
    assert not twice, f"imported by their bare names: {', '.join(sorted(twice))}; write headrace.…"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, canary: Canary) -> Iterator[EmbeddedPostgres]:
    """A Postgres 18 of this session alone, with wal_level=logical; `.url(dbname)` is the superuser's."""
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), settings=FAST) as server:
        canary.watch(server.url())
        yield server


@pytest.fixture(scope="session")
def docker_compose_file() -> Path:
    """What pytest-docker starts, where it starts anything."""
    return Path(__file__).parent.parent / "docker-compose.yml"


@pytest.fixture(scope="session")
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, canary: Canary
) -> Iterator[Stack | ContainerStack]:
    """Postgres, Kafka and Connect with Debezium: `.postgres.url()`, `.kafka.bootstrap`, `.connect.put(…)`.

    `.postgres_address` is the (host, port) a connector's configuration must name.
    """
    if engine_answers():
        services = request.getfixturevalue("docker_services")
        yield wait_for_compose(services)
    else:
        with Stack(tmp_path_factory.mktemp("stack"), postgres=FAST) as embedded:
            canary.watch(embedded.postgres.url())
            yield embedded


@pytest.fixture(scope="session")
def kafka(stack: Stack | ContainerStack) -> str:
    """The bootstrap.servers of a true broker, that of `stack`."""
    return stack.kafka.bootstrap


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
        databases.drop(admin, unique)
