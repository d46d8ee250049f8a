"""A sidecar whose state lies in S3 and whose epochs lie in a topic: its machine is lost, and another goes on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sidecar.support.process import PATIENCE
from tests.sidecar.support.real import Real, Source, real
from tests.sidecar.support.s3 import BUCKET, S3Server

DDL = (
    "create table account (id int primary key, branch int not null, balance bigint not null)",
    "insert into account select i, i % 7, 100 from generate_series(1, 200) i",
)
VIEWS = {
    "kept": "select id, balance from account",
    "by_branch": "select branch, sum(balance) as balance, count(*) as accounts from account group by branch",
}


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    with S3Server() as started:
        yield started


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def configure(shop: Real, server: S3Server, **changes: Any) -> None:
    """Its state in the bucket; its secret in the environment alone."""
    store = {"endpoint": server.url, "region": "us-east-1"}
    shop.configure(VIEWS, state=f"s3://{BUCKET}/{shop.name}", reclock="kafka", store=store, **changes)


def transfers(source: Source, first: int) -> None:
    for i in range(first, first + 5):
        source.together(
            f"update account set balance = balance + case id when {i} then 7 else -7 end where id in ({i}, {i + 50})",
            f"insert into account values ({first * 1000 + i}, 3, 5)",
        )


def frontier(shop: Real) -> tuple[int, int]:
    with psycopg.connect(shop.sink_url) as db:
        found = db.execute("select epoch, incarnation from headrace.frontier").fetchone()
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-s3")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_machine_is_lost_and_another_goes_on_from_the_store(shop: Real, server: S3Server, workers: int) -> None:
    source = shop.source(shop.name, DDL)
    configure(shop, server, engine={"workers": workers})
    shop.start()
    transfers(source, 1)
    shop.equal(source, VIEWS)
    shop.until(lambda: shop.status()["checkpoint"]["epoch"] > 0, "there is a checkpoint")
    transfers(source, 10)
    shop.kill()
    shutil.rmtree(shop.folder / "state")
    epoch, _ = frontier(shop)
    transfers(source, 20)

    shop.start()
    shop.equal(source, VIEWS)
    after, incarnation = frontier(shop)
    assert after > epoch, "epochs go on"
    assert incarnation == 1, "the sink was not taken for one of another state"
    assert shop.status()["generation"] == 2
    assert shop.stop() == 0
    assert "a-secret-of-s3" not in shop.log()


@pytest.mark.timeout(900)
def test_a_run_that_wakes_on_another_machine_writes_nothing_and_ends_with_7(
    shop: Real, server: S3Server, tmp_path: Path
) -> None:
    source = shop.source(shop.name, DDL)
    configure(shop, server)
    frozen = shop.start()
    transfers(source, 1)
    shop.equal(source, VIEWS)
    os.kill(frozen.pid, signal.SIGSTOP)

    other = Real(shop.stack, tmp_path / "other", shop.name)
    other.folder.mkdir()
    other.sources, other.sink_url = shop.sources, shop.sink_url
    configure(other, server)
    other.start()
    try:
        transfers(source, 10)
        other.equal(source, VIEWS)
        os.kill(frozen.pid, signal.SIGCONT)
        transfers(source, 20)
        assert frozen.wait(PATIENCE) == 7, shop.log()[-3000:]
        other.equal(source, VIEWS)
        assert frontier(other)[1] == 1
        assert other.stop() == 0
    finally:
        other.end()
