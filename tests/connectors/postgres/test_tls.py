"""The Postgres sink over TLS: the server's certificate is checked as the URL says, and a wrong one is told by name."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal as D
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import SinkError
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.contracts.sink import ORDERS, frontier, whole
from tests.tls import Identity, TlsFront, identity


@pytest.fixture
def shown(tmp_path: Path) -> Identity:
    return identity(tmp_path, "server")


@pytest.fixture
def front(postgres: EmbeddedPostgres, shown: Identity) -> Iterator[TlsFront]:
    with TlsFront(("127.0.0.1", postgres.port), shown) as made:
        yield made


def url(plain: str, postgres: EmbeddedPostgres, front: TlsFront, **options: str) -> str:
    said = "&".join(f"{name}={quote(value, safe='')}" for name, value in options.items())
    return f"{plain.replace(f':{postgres.port}/', f':{front.port}/')}?{said}"


def test_a_sink_writes_to_a_server_whose_certificate_it_knows(
    postgres: EmbeddedPostgres, database: str, front: TlsFront, shown: Identity
) -> None:
    sink = PostgresSink("g", url(database, postgres, front, sslmode="verify-full", sslrootcert=str(shown.certificate)))
    sink.open([ORDERS])
    sink.write({ORDERS.name: whole(ORDERS, 1, (1, D("1.00"), "a"))}, frontier(1))
    sink.close()
    assert front.encrypted > 0
    with psycopg.connect(database) as plain:
        assert plain.execute("select customer from headrace.orders_by_customer").fetchall() == [(1,)]


@pytest.mark.parametrize("wrong", ["another root", "another name"])
def test_a_server_that_is_not_the_one_it_should_be_is_told(
    postgres: EmbeddedPostgres, database: str, front: TlsFront, shown: Identity, tmp_path: Path, wrong: str
) -> None:
    root = identity(tmp_path, "other") if wrong == "another root" else shown
    said = url(database, postgres, front, sslmode="verify-full", sslrootcert=str(root.certificate))
    if wrong == "another name":
        said = said.replace("@127.0.0.1:", "@localhost:")
    with pytest.raises(SinkError) as raised:
        PostgresSink("g", said, patience=2.0).open([ORDERS])
    text = str(raised.value)
    assert "certificate" in text
    assert "sslrootcert" in raised.value.hint
    assert raised.value.where["sink"] == "g"
    assert str(front.port) in str(raised.value.where["database"])
    assert postgres.password not in text
