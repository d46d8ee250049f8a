"""A sink's Postgres fails over to real standbys that are behind: the frontier went back, and what differs is written, no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.state.checkpoint import read_manifest
from headrace.sidecar.state.generation import numbers, open_generation
from tests.conftest import FAST
from tests.sidecar.support.real import Real, Source, real
from tests.sidecar.support.standby import fall_behind, make_standby, promote

ROWS, SUM = 200, 200_000
VIEWS = {
    "kept": "select id, balance from account",
    "summed": "select sum(balance) as balance, count(*) as accounts from account",
    "by_branch": "select branch, sum(balance) as balance from account group by branch",
    "noted": "select what from note",
}
DDL = (
    "create table account (id int primary key, branch int not null, balance bigint not null)",
    f"insert into account select i, i % 7, {SUM // ROWS} from generate_series(1, {ROWS}) i",
    "create table note (what text)",
    "alter table note replica identity full",
)


class Cluster:
    """Postgres servers of which one at a time takes writes, all named in one URL. `log`: their names, as they took over."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self._ports = folder, ports.pick(count)
        self.made = [EmbeddedPostgres(folder / "0", settings=FAST, port=self._ports[0]).start()]

    @property
    def primary(self) -> EmbeddedPostgres:
        return self.made[0] if len(self.made) == 1 or self.made[0].child else self.made[-1]

    def url(self, dbname: str = "postgres") -> str:
        """All of them: the one that takes writes is found."""
        places = ",".join(f"{ports.HOST}:{p}" for p in self._ports)
        return f"postgresql://postgres:{self.made[0].password}@{places}/{dbname}?target_session_attrs=read-write"

    def standby(self) -> EmbeddedPostgres:
        """Behind from here on."""
        number = len(self.made)
        made = make_standby(self.made[-1], self.folder / str(number), FAST, self._ports[number])
        self.made.append(made)
        fall_behind(made)
        return made

    def fail_over(self) -> None:
        """The primary is killed, and the newest takes over."""
        old, new = self.made[-2:]
        assert old.child is not None
        old.child.kill()
        promote(new)

    def stop(self) -> None:
        for server in self.made:
            server.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", 4)
    yield made
    made.stop()


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str, cluster: Cluster) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        made.sink_url = made.database(cluster, f"{unique}_w")
        yield made


def transfers(source: Source, first: int) -> None:
    """Rows that change, rows that go and come back, and a note; each a transaction that keeps the sum."""
    for i in range(first, first + 5):
        pair = f"update account set balance = balance + case id when {i} then 7 else -7 end where id in ({i}, {i + 50})"
        source.together(pair, f"insert into note values ('{i}'), ('again')")
    source.together(
        f"delete from account where id = {first + 100}",
        f"insert into account values ({first + 1000}, 3, {SUM // ROWS})",
    )


def at(shop: Real) -> tuple[int, int]:
    """Epoch and incarnation; what is there with them is one state of the source."""
    with psycopg.connect(shop.sink_url) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        found = db.execute("select epoch, incarnation from headrace.frontier").fetchone()
        sums = [
            db.execute(text).fetchone()
            for text in (
                "select sum(balance), count(*) from headrace.kept",
                "select balance, accounts from headrace.summed",
                "select sum(balance), 200 from headrace.by_branch",
            )
        ]
    assert sums == [(SUM, ROWS)] * 3
    assert found is not None
    return found


def known(shop: Real) -> int:
    """The epoch that each sink holds at least, as the checkpoint knows."""
    state = shop.folder / "state"
    manifest = read_manifest(open_generation(state, numbers(state)[-1]).manifest)
    return min(manifest.sinks.values(), default=-1) if manifest is not None else -1


def written_by(shop: Real) -> dict[int, str]:
    """Each account's row, and the transaction that wrote it."""
    with psycopg.connect(shop.sink_url) as db:
        return dict(db.execute("select id, xmin::text from headrace.kept").fetchall())


@pytest.mark.timeout(900)
def test_the_difference_is_written_to_a_standby_that_was_behind(shop: Real, cluster: Cluster) -> None:
    source = shop.source(shop.name, DDL)
    shop.configure(VIEWS)
    cluster.standby()  # before there is a schema
    shop.start()
    transfers(source, 1)
    shop.equal(source, VIEWS)

    cluster.fail_over()
    transfers(source, 7)
    shop.until(lambda: there(shop), "the new server has all views")
    shop.equal(source, VIEWS)

    cluster.standby()
    epoch, incarnation = at(shop)
    transfers(source, 13)
    shop.equal(source, VIEWS)
    ahead, _ = at(shop)
    cluster.fail_over()
    before = written_by(shop)
    source.together("update account set balance = balance + case id when 30 then 1 else -1 end where id in (30, 31)")
    shop.until(lambda: at(shop)[1] > incarnation, "the sink has found out that it went back")
    shop.equal(source, VIEWS)
    after = written_by(shop)
    assert at(shop)[1] == incarnation + 1
    assert at(shop)[0] > ahead > epoch
    changed = {*range(13, 18), *range(63, 68), 30, 31}
    assert {i for i in before.keys() & after.keys() if before[i] != after[i]} == changed, "the others are as they were"

    cluster.standby()
    transfers(source, 19)
    shop.equal(source, VIEWS)
    ahead, _ = at(shop)
    transfers(source, 31)
    shop.equal(source, VIEWS)
    shop.until(lambda: known(shop) >= ahead, "its checkpoint has what the sink held before the last of these")
    shop.kill()
    cluster.fail_over()
    _, incarnation = at(shop)
    transfers(source, 25)
    shop.start()
    shop.equal(source, VIEWS)
    assert at(shop)[1] == incarnation + 1
    assert [s["state"] for s in shop.status()["sinks"]] == ["attached", "attached"]
    assert shop.stop() == 0


def there(shop: Real) -> bool:
    with psycopg.connect(shop.sink_url) as db:
        found = db.execute("select to_regclass('headrace.kept')").fetchone()
    return found is not None and found[0] is not None
