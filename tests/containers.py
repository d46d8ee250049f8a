"""The stack of docker-compose.yml with the face of the embedded one, where a container engine answers."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg

from headrace.sidecar.devstack.connect import ConnectApi

if TYPE_CHECKING:
    from pytest_docker.plugin import Services

HOST = "127.0.0.1"
_READY_SECONDS = 180.0


@functools.cache
def engine_answers() -> bool:
    """Whether `docker info` succeeds and compose is there."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    for words in (["info"], ["compose", "version"]):
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run([docker, *words], capture_output=True, check=False, timeout=20).returncode == 0:
                continue
        return False
    return True


@dataclass(frozen=True)
class ContainerPostgres:
    """The compose file's Postgres, as seen from here."""

    port: int
    password: str

    def url(self, dbname: str = "postgres", user: str | None = None, password: str | None = None) -> str:
        """A libpq URL, as `EmbeddedPostgres.url` gives."""
        if user is None:
            user, password = "postgres", self.password
        who = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "")
        return f"postgresql://{who}@{HOST}:{self.port}/{quote(dbname, safe='')}"


@dataclass(frozen=True)
class ContainerKafka:
    """The compose file's broker, as seen from here."""

    bootstrap: str


@dataclass(frozen=True)
class ContainerStack:
    """What tests use of a stack; crashing a part is for the embedded one."""

    postgres: ContainerPostgres
    kafka: ContainerKafka
    connect: ConnectApi

    @property
    def postgres_address(self) -> tuple[str, int]:
        """Host and port under which Connect reaches Postgres, inside the containers' network."""
        return "postgres", 5432


def wait_for_compose(services: Services) -> ContainerStack:
    """The compose file's services once all of them can be used."""
    postgres = ContainerPostgres(
        services.port_for("postgres", 5432), os.environ.get("HEADRACE_POSTGRES_PASSWORD", "headrace-dev")
    )

    def slot_active(slot: str) -> bool:
        with psycopg.connect(postgres.url(), autocommit=True) as client:
            found = client.execute("select active from pg_replication_slots where slot_name = %s", (slot,)).fetchone()
        return found is not None and bool(found[0])

    connect = ConnectApi(HOST, services.port_for("connect", 8083), slot_active)
    services.wait_until_responsive(check=connect.ready, timeout=_READY_SECONDS, pause=0.5)
    kafka = ContainerKafka(f"{HOST}:{services.port_for('kafka', 9092)}")
    return ContainerStack(postgres, kafka, connect)
