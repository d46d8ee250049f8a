"""Tables of one source by a common clock: what one job writes is one version, whoever dies, restarts or comes late.

One file, though a long one: every test plays with the same two tables, whose commits are made at given
seconds, and the same folder of topics.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake", reason="pip install 'headrace[delta]'")

import deltalake
from typer.testing import CliRunner

from headrace.connectors.spark import follow_cli
from headrace.connectors.spark.common_clock import LONGEST, Commit, CommonClock, Instant, groups
from headrace.connectors.spark.delta_feed import DeltaFeed
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import follow
from headrace.connectors.spark.kafka_producer import Producer
from headrace.connectors.spark.lake_feed import At, Feed
from tests.connectors.spark.wires import FolderWire

ORDERS, LINES = "public.orders", "public.lines"
FED = {"delta.enableChangeDataFeed": "true"}
PAUSE = 10
"""Seconds; a job's commits are a second apart, and jobs are a minute apart."""
State = dict[int, int]


class Table:
    """A Delta table whose commits are made at given seconds; `held`: its rows at each version."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self.name, self.held = str(folder), name, list[State]()

    @property
    def feed(self) -> DeltaFeed:
        return DeltaFeed(self.path, self.name, ("id",), {})

    def write(self, at: float, rows: Mapping[int, int], gone: int | None = None) -> None:
        """One commit: these rows come or change, and one goes."""
        made = pa.table({"id": pa.array(rows, pa.int64()), "v": pa.array(rows.values(), pa.int64())})
        if not self.held:
            deltalake.write_deltalake(self.path, made, configuration=FED)
        elif gone is not None:
            deltalake.DeltaTable(self.path).delete(f"id = {gone}")
            rows = {}
        else:
            merging = deltalake.DeltaTable(self.path).merge(made, "t.id = s.id", source_alias="s", target_alias="t")
            merging.when_matched_update_all().when_not_matched_insert_all().execute()
        before = self.held[-1] if self.held else {}
        self.held.append({k: v for k, v in {**before, **rows}.items() if k != gone})
        self._date(int(at * 1000))

    def _date(self, instant: int) -> None:
        log = Path(self.path) / "_delta_log" / f"{len(self.held) - 1:020d}.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = instant
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Shop:
    """Two tables that one job writes, and the publisher's clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000.0
        self.orders, self.lines = Table(folder / "orders", ORDERS), Table(folder / "lines", LINES)
        self.wire = FolderWire(folder / "wire")
        self.job(1)

    @property
    def tables(self) -> tuple[Table, Table]:
        return self.orders, self.lines

    def job(self, value: int, at: float | None = None) -> None:
        """One run of a job: the same value comes into both tables, a second apart."""
        start = self.now if at is None else at
        self.orders.write(start, {0: value, value: value})
        self.lines.write(start + 1, {0: value, -value: value})

    def clock(self, wire: FolderWire | None = None, *feeds: Feed, **options: Any) -> CommonClock:
        mine = feeds or tuple(table.feed for table in self.tables)
        return CommonClock(
            mine, "shop", wire or self.wire, pause=PAUSE, partitions=2, clock=lambda: int(self.now * 1e9), **options
        )

    def publish(self, wire: FolderWire | None = None, **options: Any) -> list[Instant]:
        return list(self.clock(wire).follow(**options))

    def while_it_runs(self, turns: int = 3) -> list[Instant]:
        """What is published without --available-now, in so many looks at the tables."""
        return list(looking(self.clock(), turns))


def looking(clock: CommonClock, turns: int) -> Iterator[Instant]:
    left = iter(range(turns))

    def sleep(_: float) -> None:
        if next(left, None) is None:
            raise InterruptedError

    try:
        yield from clock.follow(until_now=False, sleep=sleep)
    except InterruptedError:
        return


def read(wire: FolderWire, *tables: str) -> dict[int, dict[str, State]]:
    """Version → the tables as a reader has them who takes whole versions alone, in their order."""
    ends: dict[tuple[int, int], list[Any]] = defaultdict(list)
    rows: dict[tuple[int, int], list[tuple[str, int, Any]]] = defaultdict(list)
    for table in tables or (ORDERS, LINES):
        for record in wire.records(f"shop.{table}"):
            value = json.loads(str(record["value"]))
            if value.get("headrace") == "end":
                ends[value["version"], value["attempt"]].append(value)
            else:
                after = value["after"]
                at = (value["source"]["txId"], value["source"]["attempt"])
                rows[at].append((table, json.loads(str(record["key"]))["id"], after and after["v"]))
    found: dict[int, dict[str, State]] = {}
    held: dict[str, State] = {table: {} for table in tables or (ORDERS, LINES)}
    for version, attempt in sorted(ends):
        marks = ends[version, attempt]
        if len(marks) < len(marks[0]["tables"]) * 2:
            continue
        assert version not in found, "a version is whole once"
        for table, key, value in rows[version, attempt]:
            held[table][key] = value
        held = {t: {k: v for k, v in state.items() if v is not None} for t, state in held.items()}
        found[version] = held
    return found


def agrees(state: Mapping[str, State]) -> bool:
    """Whether both tables are as one run of the job left them."""
    return state[ORDERS].get(0) == state[LINES].get(0)


def test_commits_are_divided_where_nobody_writes_and_where_it_gets_too_long() -> None:
    def of(*instants: int) -> list[list[int]]:
        return [[c.instant for c in g] for g in groups([Commit(i, "a.b", At(i, "")) for i in instants], 10)]

    assert of() == []
    assert of(20, 0, 10, 31) == [[0, 10, 20], [31]]
    busy = range(0, 300, 10)
    assert of(*busy) == [list(range(0, 10 * LONGEST + 1, 10)), list(range(10 * LONGEST + 10, 300, 10))]


def test_a_run_of_a_job_is_one_version_numbered_by_its_last_commit(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.now += 100
    [first] = shop.publish()
    assert (first.version, first.snapshot, first.of) == (1001_000, True, {ORDERS: "0", LINES: "0"})
    for value in (2, 3):
        shop.job(value)
        shop.now += 100
    shop.orders.write(shop.now, {0: 3, 9: 9})
    done = shop.publish()
    assert [(d.version, d.of[ORDERS], d.of[LINES]) for d in done] == [
        (1101_000, "1", "1"), (1201_000, "2", "2"), (1300_000, "3", "2"),
    ]  # fmt: skip
    assert [d.tables[LINES].creates for d in done] == [1, 1, 0]
    assert all(map(agrees, read(shop.wire).values()))
    assert shop.publish() == [], "nothing is new"


def test_what_may_still_get_more_waits_unless_it_is_the_end(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop.while_it_runs() == [], "the job may be in its midst"
    shop.now += 1 + PAUSE
    assert [d.version for d in shop.while_it_runs()] == [1001_000]
    shop.orders.write(shop.now, {0: 2})
    assert shop.while_it_runs() == []
    shop.lines.write(shop.now + 1, {0: 2})
    shop.now += 1 + PAUSE
    assert [d.version for d in shop.while_it_runs()] == [1012_000]
    shop.orders.write(shop.now, {0: 3})
    shop.lines.write(shop.now, {0: 3})
    assert [d.version for d in shop.publish()] == [1022_000], "--available-now"
    assert all(map(agrees, read(shop.wire).values()))


def test_tables_that_never_pause_are_begun_all_the_same(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    clock, found = shop.clock(), list[Instant]()
    for _ in range(LONGEST + 2):
        found += looking(clock, 0)
        shop.now += PAUSE
        shop.orders.write(shop.now, {1: int(shop.now)})
    assert len(found) == 1


def test_a_commit_that_shows_up_late_is_in_the_next_version(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.job(2, at=2000)
    shop.now = 3000
    shop.publish()
    shop.lines.write(1500, {0: 7})
    [done] = shop.publish()
    assert (done.version, done.late, done.of[LINES]) == (2001_001, (f"{LINES}@2",), "2")
    shop.orders.write(1600, {0: 7})
    shop.job(8, at=4000)
    shop.now = 5000
    done = shop.publish()
    assert [(d.version, d.late) for d in done] == [(2001_002, (f"{ORDERS}@2",)), (4001_000, ())]
    assert read(shop.wire)[4001_000] == {ORDERS: shop.orders.held[-1], LINES: shop.lines.held[-1]}


@pytest.mark.parametrize("lost", range(4))
def test_a_version_that_died_is_published_again_under_its_number(tmp_path: Path, lost: int) -> None:
    shop = Shop(tmp_path)
    for value in (2, 3):
        dying = FolderWire(tmp_path / "wire", fail_ends=lost)
        with pytest.raises(PublishError, match="told to fail"):
            shop.publish(dying)
        done = shop.publish()
        assert [d.attempt for d in done] == [2]
        assert done[0].version == int(shop.now * 1000) + 1000
        shop.now += 100
        shop.job(value)
    [done] = shop.publish()
    assert done.attempt == 1
    assert all(map(agrees, read(shop.wire).values()))


class Cut(FolderWire):
    """A wire that is cut while a version's records are sent: those of one topic alone arrive."""

    def producer(self) -> Producer:
        made = super().producer()

        class Cutting:
            def produce(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
                self.produce_batch(topic, partition, [(key, value)])

            def produce_batch(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
                if topic == f"shop.{LINES}":
                    made.produce_batch(topic, partition, records)

            def flush(self) -> None:
                made.flush()
                raise PublishError("told to fail")

        return Cutting()


def test_two_versions_that_died_are_not_taken_for_whole(tmp_path: Path) -> None:
    """The first got all of its ENDs in one table; of the second, which has a commit more, that table has nothing."""
    shop = Shop(tmp_path)
    shop.publish()
    shop.now += 100
    shop.job(2)
    with pytest.raises(PublishError):
        shop.publish(FolderWire(tmp_path / "wire", fail_ends=2))
    shop.lines.write(shop.now + 5, {7: 7})
    with pytest.raises(PublishError):
        shop.publish(Cut(tmp_path / "wire"))
    [done] = shop.publish()
    assert (done.version, done.attempt) == (1101_000, 3)
    assert list(read(shop.wire).values())[-1] == {table.name: table.held[-1] for table in shop.tables}


def test_what_several_commits_undo_is_no_change(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish()
    shop.now += 100
    for second, (rows, gone) in enumerate([({0: 5, 8: 8}, None), ({}, 8), ({0: 1, 9: 9}, None), ({9: 10}, None)]):
        shop.orders.write(shop.now + second, rows, gone)
    [done] = shop.publish()
    counts = done.tables[ORDERS]
    assert (counts.creates, counts.updates, counts.deletes) == (1, 0, 0), "the row that stays"
    assert read(shop.wire)[done.version][ORDERS] == shop.orders.held[-1]


@pytest.mark.parametrize("seed", range(6))
def test_random_lives(tmp_path: Path, seed: int) -> None:
    """Jobs, single commits, slow clocks and publishers that die at any place, started anew each time."""
    draw, shop = random.Random(seed), Shop(tmp_path)
    late = False
    for value in range(2, 14):
        shop.now += draw.choice([15, 40])
        what = draw.choice(["job", "job", "orders", "lines", "delete", "late"])
        if what == "job":
            shop.job(value)
        elif what == "delete" and len(shop.orders.held[-1]) > 1:
            shop.orders.write(shop.now, {}, gone=max(shop.orders.held[-1]))
        elif what == "late":
            late = True
            draw.choice(shop.tables).write(shop.now - draw.choice([20, 200]), {5000 + value: value})
        else:
            (shop.lines if what == "lines" else shop.orders).write(shop.now, {6000 + value: value})
        shop.now += draw.choice([0.0, 2, 11])
        for _ in range(draw.randint(0, 2)):
            dying = FolderWire(
                tmp_path / "wire", fail_ends=draw.choice([None, *range(4)]), fail_data=draw.random() < 0.3
            )
            with suppress(PublishError):
                list(looking(shop.clock(dying), 1)) if draw.random() < 0.7 else shop.publish(dying)
    shop.publish()
    found = read(shop.wire)
    assert list(found.values())[-1] == {table.name: table.held[-1] for table in shop.tables}
    for table in shop.tables:
        at = 0
        for state in found.values():  # each state is one that the table had, and they only go on
            at = next(n for n in range(at, len(table.held)) if table.held[n] == state[table.name])
    if not late:
        assert all(map(agrees, found.values()))
    assert shop.publish() == []


def test_tables_come_and_go(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    list(shop.clock(None, shop.orders.feed).follow())
    shop.now += 100
    shop.job(2)
    [whole, changes] = shop.clock(None, shop.orders.feed, shop.lines.feed).follow()
    assert (whole.snapshot, whole.of) == (True, {ORDERS: "0", LINES: "1"}), "a table that is new comes whole"
    assert (changes.snapshot, changes.of) == (False, {ORDERS: "1", LINES: "1"})
    shop.now += 100
    shop.job(3)
    [done] = shop.clock(None, shop.lines.feed).follow()
    assert done.of == {LINES: "2"}
    shop.now += 100
    shop.job(4)
    [late, done] = shop.publish()
    assert (late.late, late.of) == ((f"{ORDERS}@2",), {ORDERS: "2", LINES: "2"}), "what it missed while it was left out"
    assert (done.late, done.of) == ((), {ORDERS: "3", LINES: "3"})
    assert read(shop.wire)[done.version] == {ORDERS: shop.orders.held[-1], LINES: shop.lines.held[-1]}


def test_what_was_loaded_is_gone_on_from(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.job(2, at=2000)
    loaded = {ORDERS: 2, LINES: 1}
    [done] = shop.clock(loaded=loaded).follow()
    assert (done.version, done.snapshot, done.tables[ORDERS].updates, done.tables[LINES].updates) == (
        2001_000,
        False,
        0,
        1,
    )
    assert list(shop.clock(loaded=loaded).follow()) == [], "what the topics tell counts, once they tell something"
    with pytest.raises(PublishError, match="each table or none"):
        shop.clock(loaded={ORDERS: 2})


def test_history_that_is_gone_is_named_and_the_whole_tables_are_the_way_out(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish()
    before = pa.table(
        {"id": pa.array(shop.lines.held[-1], pa.int64()), "v": pa.array(shop.lines.held[-1].values(), pa.int64())}
    )
    shop.now += 100
    shop.job(2)
    for path in (tmp_path / "lines" / "_change_data").glob("*.parquet"):
        path.unlink()  # as a vacuum does
    with pytest.raises(PublishError, match="change feed of a version cannot be read") as caught:
        shop.publish()
    assert LINES in str(caught.value)
    [done, rest] = shop.publish(previous={LINES: before})
    assert (done.snapshot, done.of) == (True, {ORDERS: "0", LINES: "1"}), "the others go on as ever"
    assert rest.of == {ORDERS: "1", LINES: "1"}
    shop.now += 100
    shop.job(3)
    [done] = shop.publish(snapshot=True)
    assert read(shop.wire)[done.version] == {ORDERS: shop.orders.held[-1], LINES: shop.lines.held[-1]}


def test_the_two_ways_of_counting_do_not_mix(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish()
    with pytest.raises(PublishError, match="by a common clock"):
        list(follow(shop.orders.feed, "shop", shop.wire))
    other = FolderWire(tmp_path / "other")
    list(follow(shop.orders.feed, "shop", other))
    with pytest.raises(PublishError, match="without a common clock"):
        shop.publish(other)
    with pytest.raises(PublishError, match="named twice"):
        shop.clock(None, shop.orders.feed, shop.orders.feed)


def test_a_log_that_tells_no_time_is_named(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    log = Path(shop.orders.path) / "_delta_log" / f"{0:020d}.json"
    lines = [line for line in log.read_text().splitlines() if "commitInfo" not in line]
    log.write_text("\n".join(lines))
    with pytest.raises(PublishError, match="does not tell when"):
        shop.publish()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path)
    monkeypatch.setattr(follow_cli, "KafkaWire", lambda *_: shop.wire)
    named = [f"{table.name}(id)=delta:{table.path}" for table in shop.tables]
    to = ["--prefix", "shop", "--bootstrap", "b:1", "--partitions", "2", "--available-now"]

    def said(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(follow_cli.app, [*named, *to, *words])
        assert done.exit_code == code, done.output
        return done.output

    assert "several tables need a common clock" in said(code=1)
    assert said("--common-clock", "10").splitlines()[:2] == [
        "version 1001000, attempt 1: whole tables", f"  {ORDERS} at its 0: 2 created, 0 updated, 0 deleted",
    ]  # fmt: skip
    shop.lines.write(900, {0: 5})
    assert f"late: {LINES}@1" in said("--common-clock", "10")
    shop.job(2, at=2000)
    [line] = said("--common-clock", "10", "--json").splitlines()
    assert json.loads(line)["of"] == {ORDERS: "1", LINES: "2"}
    assert "names a table that is not followed" in said("--common-clock", "10", "--loaded", "3", code=1)
    assert "needs the number" in said("--common-clock", "10", "--loaded", f"{ORDERS}=x", code=1)
    assert {t["name"] for t in json.loads(said("--describe", "--json"))["tables"]} == {ORDERS, LINES}
