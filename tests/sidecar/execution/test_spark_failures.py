"""The whole sidecar on a standalone Spark of its own, through what can fail there: it names it, and goes on by itself.

Always: after each fault both sinks hold what Postgres answers to the same SQL.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.devstack.spark import EmbeddedSpark
from tests.sidecar.execution.workers.conftest import CONF
from tests.sidecar.execution.workers.test_spark_pool import all_gone, executor_of, supervisor_of
from tests.sidecar.support.process import PATIENCE
from tests.sidecar.support.real import Real, Source, real
from tests.sidecar.support.s3 import BUCKET, S3Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
DDL = (
    "create table account (id int primary key, branch int not null, balance bigint not null)",
    "insert into account select i, i % 7, 100 from generate_series(1, 200) i",
)
DECOMMISSION = {"spark.decommission.enabled": "true"}
VIEWS = {
    "kept": "select id, balance from account",
    "by_branch": "select branch, sum(balance) as balance, count(*) as accounts from account group by branch",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSpark]:
    """Two Spark workers of two slots each."""
    pytest.importorskip("pyspark")
    made = EmbeddedSpark(tmp_path_factory.mktemp("cluster"), pick(1)[0], cores=4, memory_mb=1400, settings=DECOMMISSION)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def shop(stack: Any, cluster: EmbeddedSpark, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def engine(cluster: EmbeddedSpark, **more: Any) -> dict[str, Any]:
    return {"host": "spark", "workers": 2, "spark": {"master": cluster.master, "conf": CONF, **more}}


def transfers(source: Source, first: int) -> None:
    for i in range(first, first + 5):
        source.together(
            f"update account set balance = balance + case id when {i} then 7 else -7 end where id in ({i}, {i + 50})",
            f"insert into account values ({first * 1000 + i}, 3, 5)",
        )


def begun(shop: Real, cluster: EmbeddedSpark, **changes: Any) -> Source:
    """A sidecar that has taken in some changes."""
    source = shop.source(shop.name, DDL)
    shop.configure(VIEWS, **{"engine": engine(cluster), **changes})
    shop.start()
    transfers(source, 1)
    shop.equal(source, VIEWS)
    return source


def pids(shop: Real) -> list[int]:
    return [int(worker["pid"]) for worker in shop.status()["workers"]]


def metric(shop: Real, name: str) -> float:
    """The value of one series; 0 where nobody answers."""
    text = (shop.get("/metrics") or b"").decode()
    return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0)


def probe(shop: Real, path: str) -> tuple[int, str]:
    """HTTP's code and the text; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{shop.http}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def jvm_of(shop: Real) -> psutil.Process:
    """Of the driver's session."""
    assert shop.process is not None
    return next(p for p in psutil.Process(shop.process.pid).children() if "java" in p.name())


def goes_on(shop: Real, source: Source, first: int) -> None:
    """The same process, with new workers, until both sinks hold the truth."""
    assert shop.process is not None
    transfers(source, first)
    shop.until(lambda: probe(shop, "/readyz")[0] == 200, "it is ready again")
    shop.equal(source, VIEWS)
    assert shop.process.poll() is None


@pytest.mark.long
def test_what_is_killed_is_named_and_replaced(shop: Real, cluster: EmbeddedSpark) -> None:
    source = begun(shop, cluster)
    for number, victim in enumerate((psutil.Process, supervisor_of, executor_of, lambda _: jvm_of(shop)), 1):
        before = pids(shop)
        victim(before[1]).kill()
        shop.until(lambda: metric(shop, 'headrace_worker_restarts_total{reason="died"}') >= number, "it was noticed")  # noqa: B023
        goes_on(shop, source, 10 * number)
        assert not set(pids(shop)) & set(before)
    log = shop.log()
    assert log.count("event=workers_lost") == 4
    assert "exit=SIGKILL" in log
    assert "its executor ended by SIGKILL" in log
    legs = {leg: metric(shop, f'headrace_worker_restart_seconds{{leg="{leg}"}}') for leg in ("start", "recover")}
    assert all(0 < seconds < 60 for seconds in legs.values()), legs
    transfers(source, 60)
    shop.until(lambda: metric(shop, 'headrace_exchange_bytes_total{to="1",worker="0"}') > 0, "bytes are counted")
    assert metric(shop, 'headrace_exchange_rounds_total{worker="1"}') > 0
    assert metric(shop, 'headrace_exchange_wait_seconds_total{last="1",worker="0"}') > 0
    assert shop.stop() == 0


@contextmanager
def writing(source: Source) -> Iterator[None]:
    """Transactions go on meanwhile."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.01):
            source.together(
                "update account set balance = balance + case id when 1 then 1 else -1 end where id in (1, 60)"
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.long
def test_workers_that_read_are_replaced_and_changed_in_number(shop: Real, cluster: EmbeddedSpark) -> None:
    """Executors read the topics. Four slots have no room for three workers beside two, and have for one beside three."""
    source = begun(shop, cluster, engine={**engine(cluster), "intake": "shards"})
    for number, victim in enumerate((psutil.Process, executor_of), 1):
        before = pids(shop)
        victim(before[1]).kill()
        shop.until(lambda: metric(shop, 'headrace_worker_restarts_total{reason="died"}') >= number, "it was noticed")  # noqa: B023
        goes_on(shop, source, 10 * number)
    for at, count in enumerate((3, 1, 2)):
        with writing(source):
            told = shop.command("rescale", str(count))
        assert told.returncode == 0, told.stdout + told.stderr
        shop.until(lambda: len(pids(shop)) == count, "status tells of them")  # noqa: B023
        goes_on(shop, source, 30 + 10 * at)
    assert shop.log().count("event=workers_lost") == 2
    assert shop.stop() == 0


@pytest.mark.long
def test_with_too_few_slots_it_is_alive_and_not_ready_and_says_so_until_there_are_enough(
    shop: Real, cluster: EmbeddedSpark
) -> None:
    source = begun(shop, cluster)
    begun_at = time.monotonic()
    for worker in cluster.workers:
        worker.kill()
    try:
        shop.until(lambda: "too few slots" in probe(shop, "/readyz")[1], "it says what it lacks")
        assert time.monotonic() - begun_at < 45
        assert probe(shop, "/readyz")[0] == 503
        assert probe(shop, "/livez")[0] == 200
        assert metric(shop, 'headrace_workers{state="missing"}') == 2
        told = shop.command("status")
        assert "too few slots" in " ".join(told.stdout.split()), told.stdout + told.stderr
        assert shop.command_json("status")["waits"]["since"] > 0
    finally:
        for k in range(2):
            cluster.restart_worker(k)
    goes_on(shop, source, 10)
    assert metric(shop, 'headrace_workers{state="missing"}') == 0
    assert "event=slots_missing" in shop.log()
    assert shop.stop() == 0


@pytest.mark.long
def test_a_master_that_forgot_us_is_asked_anew(shop: Real, cluster: EmbeddedSpark) -> None:
    source = begun(shop, cluster)
    cluster.restart_master(0.5)
    goes_on(shop, source, 10)
    time.sleep(5)  # a worker of Spark registers anew and ends what the master does not know
    goes_on(shop, source, 20)
    assert shop.stop() == 0


@pytest.mark.long
def test_a_machine_that_is_decommissioned_works_on_until_it_is_gone_and_is_done_without(
    shop: Real, cluster: EmbeddedSpark
) -> None:
    source = begun(shop, cluster, engine=engine(cluster, conf={**CONF, **DECOMMISSION}))
    before = pids(shop)
    lost = executor_of(before[0]).parent()
    assert lost is not None
    k = next(k for k, worker in enumerate(cluster.workers) if worker.pid == lost.pid)
    try:
        lost.send_signal(signal.SIGPWR)  # as a cloud does shortly before it takes the machine away
        for first in (10, 20):
            time.sleep(3)
            goes_on(shop, source, first)
        lost.kill()
        goes_on(shop, source, 30)
        assert not set(pids(shop)) & set(before)
    finally:
        cluster.restart_worker(k)
    assert shop.stop() == 0


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    with S3Server() as started:
        yield started


def in_store(shop: Real, server: S3Server) -> dict[str, Any]:
    store = {"endpoint": server.url, "region": "us-east-1"}
    return {"state": f"s3://{BUCKET}/{shop.name}", "reclock": "kafka", "store": store}


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-s3")


ENVIRONMENT = {
    "spark.executorEnv.AWS_ACCESS_KEY_ID": "key",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "a-secret-of-s3",
}


@pytest.mark.long
@pytest.mark.usefixtures("secret")
def test_a_driver_that_was_frozen_writes_nothing_when_it_wakes_and_its_executors_end(
    shop: Real, cluster: EmbeddedSpark, server: S3Server, tmp_path: Path
) -> None:
    in_cluster = engine(cluster, conf={**CONF, **ENVIRONMENT})
    source = begun(shop, cluster, engine=in_cluster, **in_store(shop, server))
    assert shop.process is not None
    frozen, before = shop.process, pids(shop)
    executors = [executor_of(pid).pid for pid in before]
    os.kill(frozen.pid, signal.SIGSTOP)
    assert all_gone(before), "its workers end while it is frozen, and leave idle executors"

    other = Real(shop.stack, tmp_path / "other", shop.name)
    other.folder.mkdir()
    other.sources, other.sink_url = shop.sources, shop.sink_url
    other.configure(VIEWS, engine=in_cluster, **in_store(shop, server))
    other.start()
    try:
        transfers(source, 10)
        other.equal(source, VIEWS)
        os.kill(frozen.pid, signal.SIGCONT)
        transfers(source, 20)
        assert frozen.wait(PATIENCE) == 7, shop.log()[-3000:]
        assert all_gone(executors)
        other.equal(source, VIEWS)
        with psycopg.connect(shop.sink_url) as db:
            assert db.execute("select incarnation from headrace.frontier").fetchone() == (1,)
        assert other.stop() == 0
    finally:
        other.end()


@pytest.mark.long
@pytest.mark.usefixtures("secret")
def test_a_killed_driver_leaves_nothing_and_another_machine_goes_on_from_the_store(
    shop: Real, cluster: EmbeddedSpark, server: S3Server
) -> None:
    in_cluster = engine(cluster, conf={**CONF, **ENVIRONMENT})
    source = begun(shop, cluster, engine=in_cluster, **in_store(shop, server))
    shop.until(lambda: shop.status()["checkpoint"]["epoch"] > 0, "there is a checkpoint")
    before = pids(shop)
    watched = [*before, *(supervisor_of(pid).pid for pid in before), *(executor_of(pid).pid for pid in before)]
    shop.kill()
    assert all_gone(watched)
    shutil.rmtree(shop.folder / "state")
    transfers(source, 10)
    shop.start()
    shop.equal(source, VIEWS)
    with psycopg.connect(shop.sink_url) as db:
        assert db.execute("select incarnation from headrace.frontier").fetchone() == (1,)
    assert shop.stop() == 0


@pytest.mark.long
@pytest.mark.usefixtures("secret")
def test_while_the_store_is_away_steps_go_on_and_status_says_since_when(shop: Real, cluster: EmbeddedSpark) -> None:
    pytest.importorskip("moto")
    with S3Server() as first:
        in_cluster = engine(cluster, conf={**CONF, **ENVIRONMENT})
        source = begun(shop, cluster, engine=in_cluster, **in_store(shop, first))
        shop.until(lambda: shop.status()["checkpoint"]["epoch"] > 0, "there is a checkpoint")
        stands = shop.status()["checkpoint"]["epoch"]
        first.pause()
        begun_at = time.monotonic()
        transfers(source, 10)
        shop.equal(source, VIEWS)
        assert time.monotonic() - begun_at < 15, "sinks do not wait for the store"
        shop.until(lambda: bool(shop.status()["checkpoint"]["since"]), "status says since when")
        told = shop.status()["checkpoint"]
        assert "does not answer" in told["error"]
        assert told["epoch"] >= stands
        assert metric(shop, 'headrace_store_requests_total{outcome="failed"}') > 0
        first.resume()
        shop.until(lambda: shop.status()["checkpoint"]["epoch"] > told["epoch"], "checkpoints go on")
        assert "event=workers_lost" not in shop.log()
        assert json.dumps(shop.status()).find("a-secret-of-s3") < 0
        assert shop.stop() == 0
