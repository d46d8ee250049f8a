"""The audit: a sink that is right, wrong in known ways, behind, or of a source that does not stand still."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from headrace.connectors.commit_place import Lsn
from headrace.connectors.lsn import lsn_number
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import Frontier, SourceFrontier, ViewChanges
from headrace.sidecar.cli.app import app
from headrace.sidecar.cli.audit import AuditMetrics, prepare, run_audit
from headrace.sidecar.config.config import load
from headrace.sidecar.operations.audit import Audit, AuditError, Finding
from headrace.sidecar.wiring.project import read_project, sink_view
from tests.contracts.sink import whole

VIEWS = """\
version: 1
views:
  - {name: big, sql: "select id, total, weight from orders where total > 10"}
  - {name: sums, sinks: [w], key: [id], sql: "select public.big.id, total * 2 as twice, weight from public.big"}
  - {name: counts, sinks: [w], sql: "select count(*) as n, sum(total) as total from orders"}
"""


class Place:
    """A source's table and the sink's schema in one database; `publish` is what a sidecar would do."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self.epoch = url, 0
        self.db = psycopg.connect(url, autocommit=True)
        self.db.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12,2), weight float8)")
        (folder / "views.yaml").write_text(VIEWS)
        columns = [{"name": n, "data_type": t} for n, t in (("id", "bigint"), ("total", "numeric(12,2)"),
                                                            ("weight", "double precision"))]  # fmt: skip
        table = {"name": "public.orders", "key": ["id"], "columns": columns}
        source = {"name": "shop", "type": "debezium", "topic_prefix": "shop", "tables": [table], "database": url}
        body = {
            "version": 1, "name": "little", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "http": None,
            "sources": [source], "views": "views.yaml", "sinks": [{"name": "w", "type": "postgres", "url": url}],
        }  # fmt: skip
        self.path = folder / "headrace.yaml"
        self.path.write_text(json.dumps(body))
        compiled = read_project(load(self.path, {})).compile()
        self.views = {v.name: sink_view(v) for v in compiled if v.spec.sinks}
        self.sink = PostgresSink("w", url)
        self.sink.open(list(self.views.values()))

    def buy(self, *rows: tuple[int, str, float]) -> None:
        with self.db.transaction():
            for row in rows:
                self.db.execute("INSERT INTO orders VALUES (%s, %s, %s)", row)

    def publish(self, *, stale: bool = False, ahead: int = 0) -> None:
        """Everything that is committed, or (`stale`) only that it was; `ahead`: and all that will be, as a heartbeat says."""
        found = self.db.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert found is not None
        self.epoch += 1
        changes: dict[str, ViewChanges] = {}
        if not stale:
            sums = self.db.execute("SELECT id, total * 2, weight FROM orders WHERE total > 10").fetchall()
            counts = self.db.execute("SELECT count(*), sum(total) FROM orders").fetchall()
            changes = {"sums": whole(self.views["sums"], self.epoch, *sums),
                       "counts": whole(self.views["counts"], self.epoch, *counts)}  # fmt: skip
        at = SourceFrontier({"shop.public.orders": {0: self.epoch}}, Lsn(lsn_number(found[0]) + ahead), 10**15)
        self.sink.write(changes, Frontier(self.epoch, {"shop": at}))

    def audit(self, *names: str) -> Audit:
        made = prepare(load(self.path, {}), names, None, None)
        made.sleep = lambda _: self.publish(stale=True)
        return made


@pytest.fixture
def place(tmp_path: Path, database: str) -> Iterator[Place]:
    made = Place(tmp_path, database)
    made.buy((1, "12.50", 0.1), (2, "9.00", 1e300), (3, "20.00", float("nan")))
    made.publish()
    yield made
    made.sink.close()
    made.db.close()


def test_a_sink_that_is_right_is_equal(place: Place) -> None:
    found = {f.view: f for f in place.audit().run()}
    assert {name: (f.state, f.rows, f.missing, f.extra) for name, f in found.items()} == {
        "sums": ("equal", 2, 0, 0), "counts": ("equal", 1, 0, 0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("weight", "state"), [("'0.30000000000000004'", "equal"), ("0.2999999", "mismatch"), ("null", "mismatch")]
)
def test_the_last_digit_of_a_float_is_no_difference(place: Place, weight: str, state: str) -> None:
    place.db.execute("UPDATE orders SET weight = 0.3 WHERE id = 1")
    place.db.execute(f"UPDATE headrace.sums SET weight = {weight} WHERE id = 1")  # type: ignore[call-overload]
    assert {f.view: f.state for f in place.audit().run()} == {"sums": state, "counts": "equal"}


@pytest.mark.parametrize(
    ("done", "view", "missing", "extra"),
    [
        ("UPDATE headrace.sums SET twice = 26 WHERE id = 1", "sums", 1, 1),
        ("DELETE FROM headrace.sums WHERE id = 3", "sums", 1, 0),
        ("INSERT INTO headrace.sums VALUES (9, 1, 1)", "sums", 0, 1),
        ("UPDATE headrace.counts SET n = 4", "counts", 1, 1),
    ],
)
def test_rows_that_are_wrong_are_counted(place: Place, done: str, view: str, missing: int, extra: int) -> None:
    place.db.execute(done)  # type: ignore[call-overload]
    found = {f.view: f for f in place.audit().run()}
    assert (found[view].state, found[view].missing, found[view].extra) == ("mismatch", missing, extra)
    assert [f.state for n, f in found.items() if n != view] == ["equal"]
    place.publish(stale=True, ahead=1 << 30)
    told = CliRunner().invoke(app, ["audit", view, "--config", str(place.path), "--json"])
    assert told.exit_code == 9
    assert json.loads(told.stdout.splitlines()[0])["mismatches"] == missing + extra
    assert "does not hold what the source answers" in told.stdout


@pytest.mark.parametrize(
    "done", ["ALTER TABLE orders RENAME COLUMN weight TO heavy", "ALTER TABLE orders DROP COLUMN weight"]
)
def test_what_is_gone_from_the_source_is_told_of_its_views_and_the_others_are_compared(place: Place, done: str) -> None:
    place.db.execute(done)  # type: ignore[call-overload]
    found = {f.view: f for f in place.audit().run()}
    assert {name: f.state for name, f in found.items()} == {"sums": "gone", "counts": "equal"}
    assert "weight" in found["sums"].why
    place.publish(stale=True, ahead=1 << 30)
    told = CliRunner().invoke(app, ["audit", "--config", str(place.path), "--json"])
    assert told.exit_code == 9
    assert {v["view"]: v["state"] for v in json.loads(told.stdout.splitlines()[0])["views"]} == {
        "sums": "gone",
        "counts": "equal",
    }
    assert "no longer has what a view reads" in told.stdout
    place.db.execute("DROP TABLE orders")
    assert {f.state for f in place.audit().run()} == {"gone"}


def test_a_wrong_row_is_found_while_others_change(place: Place) -> None:
    place.db.execute("UPDATE headrace.sums SET twice = 26 WHERE id = 1")
    audit, ids = place.audit("sums"), iter(range(10, 100))

    def live(_: float) -> None:
        place.buy((next(ids), "50.00", 1.0))
        place.publish(stale=True)

    audit.sleep = live
    [found] = audit.run()
    assert (found.state, found.missing, found.extra) == ("mismatch", 1, 1)


def test_what_never_stands_still_is_unsettled(place: Place) -> None:
    audit, ids = place.audit("counts"), iter(range(10, 100))

    def live(_: float) -> None:
        place.buy((next(ids), "50.00", 1.0))
        place.publish()
        place.buy((next(ids), "50.00", 1.0))
        place.publish(stale=True)

    live(0)
    audit.sleep = live
    [found] = audit.run()
    assert found.state in ("unsettled", "mismatch")
    assert found.missing == 0
    assert found.state == "unsettled"


def test_a_view_in_error_is_told_as_that(place: Place) -> None:
    place.db.execute("UPDATE headrace.view SET error = 'division by zero' WHERE name = 'sums'")
    assert [(f.view, f.state) for f in place.audit("sums").run()] == [("sums", "in error")]


def test_a_view_that_fails_in_the_source_too_keeps_no_other_from_its_audit(place: Place) -> None:
    audit = place.audit()
    audit.queries = {**audit.queries, "sums": "select id, total / (id - 1) as twice, weight from orders"}
    assert {f.view: f.state for f in audit.run()} == {"sums": "no answer", "counts": "equal"}
    place.db.execute("UPDATE headrace.view SET error = 'division by zero' WHERE name = 'sums'")
    assert {f.view: f.state for f in audit.run()} == {"sums": "in error", "counts": "equal"}


def test_a_sink_that_does_not_follow_is_named(place: Place) -> None:
    audit = place.audit()
    audit.sleep, audit.patience = (lambda _: None), 0.2
    place.buy((4, "11.00", 1.0))
    with pytest.raises(AuditError, match="did not come to where the source was asked"):
        audit.run()


def test_what_is_not_there_is_named(place: Place) -> None:
    settings = load(place.path, {})
    with pytest.raises(AuditError, match="no such view"):
        prepare(settings, ["nothing"], None, None)
    with pytest.raises(AuditError, match="no such postgres sink"):
        prepare(settings, [], "bus", None)
    body = json.loads(place.path.read_text())
    del body["sources"][0]["database"]
    place.path.write_text(json.dumps(body))
    settings = load(place.path, {})
    with pytest.raises(AuditError, match="which source is meant"):
        prepare(settings, [], None, None)
    with pytest.raises(AuditError, match="a database cannot be read"):
        prepare(settings, [], None, "postgresql://nobody@127.0.0.1:1/x").run()


def test_rounds_are_metrics(place: Place) -> None:
    place.db.execute("DELETE FROM headrace.sums WHERE id = 3")
    metrics = AuditMetrics()
    door = metrics.serve("127.0.0.1:0")
    try:
        metrics.take(place.audit().run())
        with urllib.request.urlopen(f"http://{door.address}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        door.close()
    assert 'headrace_audit_mismatches{view="sums"} 1.0' in text
    assert 'headrace_audit_mismatches{view="counts"} 0.0' in text
    assert "headrace_audit_rounds_total 1.0" in text


def test_rounds_go_on_after_one_that_failed(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by `make alerts`: an audit that goes on ended as a sink took no connection for a moment."""
    rounds: list[int] = []

    def run(_: Audit) -> list[Finding]:
        rounds.append(len(rounds))
        if len(rounds) == 2:
            raise AuditError("a database cannot be read")
        if len(rounds) == 4:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(Audit, "run", run)
    with pytest.raises(KeyboardInterrupt):
        run_audit(load(place.path, {}), [], None, None, 0.01, None, as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["error" in line for line in told] == [False, True, False]
    rounds[:] = [0]
    with pytest.raises(AuditError):
        run_audit(load(place.path, {}), [], None, None, 0.01, None, as_json=True)


@pytest.mark.parametrize("url", ["host=h password='wrong-canary-71", "postgresql://u:wrong-canary-71@127.0.0.1:1/d"])
def test_an_address_that_is_not_right_is_told_without_its_password(url: str) -> None:
    audit = Audit(
        views=[], source="shop", source_url=url, sink_url="postgresql://u:p@127.0.0.1:1/d", schema="headrace", sink="w"
    )
    with pytest.raises(AuditError) as caught:
        audit.run()
    assert "wrong-canary-71" not in f"{caught.value} {caught.value.as_json()}"
    assert "--from" in caught.value.hint
