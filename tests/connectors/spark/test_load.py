"""Tables filled by Spark's tasks: the files are those that a dataflow over the same rows would hold."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.sidecar.wiring.project import read_project

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from headrace.engine.batch import Batch, Layout
from headrace.engine.batch.description import Description
from headrace.engine.schema import BIGINT, TEXT, Column, Schema
from headrace.engine.trace import Spine
from headrace.engine.trace.lookup import content
from headrace.sidecar.config.config import load
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.table_traces import table_traces
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.lake import runs, spark_job
from headrace.sidecar.lake.empty_state import taken
from headrace.sidecar.lake.load import Loading, Origin, load_tables
from headrace.sidecar.lake.runs import LoadError
from headrace.sidecar.state.batch_places import FolderBatches
from headrace.sidecar.state.batch_store import BatchStore, load_batches
from headrace.sidecar.state.checkpoint import read_manifest
from headrace.sidecar.state.generation import StateError, last_generation, numbers, take_generation
from headrace.spark import register

COLUMNS = {
    "id": "bigint", "city": "text", "price": "numeric(10,2)", "free": "numeric", "at": "timestamp with time zone",
    "day": "date", "raw": "bytea", "real": "real", "doc": "json", "who": "uuid",
}  # fmt: skip
CONFIG = """
version: 1
name: lake
state: state
kafka: {{bootstrap.servers: "127.0.0.1:1"}}
engine: {{workers: {workers}}}
sources:
  - name: lake
    type: spark
    topic_prefix: lake
    tables:
      - {{name: public.big, key: [id], columns: [{columns}]}}
sinks:
  - {{name: bus, type: kafka, topic_prefix: views.}}
views: views
"""
VIEWS = """
version: 1
views:
  - name: by_city
    sinks: [bus]
    sql: select city, count(*) as n, sum(price) as price from public.big group by city
  - {name: cities, sinks: [bus], sql: select distinct city from public.big}
  - name: best
    sinks: [bus]
    sql: select city, max(price) as top, min(id) as first, count(day) as days from public.big where price > 50 group by city
  - name: next
    sinks: [bus]
    sql: select a.id, b.city, b.price from public.big a join public.big b on b.id = a.id + 1 where a.price < 5000
"""


def folder_of(tmp_path: Path, workers: int = 1) -> Path:
    columns = ", ".join(f"{{name: {n}, data_type: '{t}'}}" for n, t in COLUMNS.items())
    (tmp_path / "headrace.yaml").write_text(CONFIG.format(workers=workers, columns=columns))
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.yaml").write_text(VIEWS)
    return tmp_path / "headrace.yaml"


def rows_of(count: int, seed: int = 1) -> pa.Table:
    draw = random.Random(seed)
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 678901, dt.UTC)

    def some(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    ids = list(range(count))
    draw.shuffle(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "city": [some(draw.choice("abcdé")) for _ in ids],
            "price": pa.array([some(Decimal(draw.randrange(10**6)) / 100) for _ in ids], pa.decimal128(10, 2)),
            "free": [some(draw.choice(["1.50", "-0", "1e3", "NaN"])) for _ in ids],
            "at": pa.array([some(moment) for _ in ids], pa.timestamp("us", "UTC")),
            "day": pa.array([some(dt.date(1, 1, 1)) for _ in ids], pa.date32()),
            "raw": [some(b"\x00\xff") for _ in ids],
            "real": pa.array([some(0.1) for _ in ids], pa.float32()),
            "doc": [some('{"b": 1, "a":2}') for _ in ids],
            "who": [some("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11") for _ in ids],
        }
    )


def fill(config: Path, spark: SparkSession, path: Path, **options: Any) -> Loading:
    return load_tables(load(config), ["public.big"], Origin("parquet", str(path)), session=lambda _: spark, **options)


def test_it_tells_how_far_it_is(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_job, "TELL_SECONDS", 0.01)
    config, told = folder_of(tmp_path), list[tuple[str, int, int]]()
    pq.write_table(rows_of(2_000), tmp_path / "big.parquet", row_group_size=500)
    fill(config, spark, tmp_path / "big.parquet", tasks=4, tell=lambda *line: told.append(line))
    assert {table for table, _, _ in told} == {"public.big"}
    assert max(of for _, _, of in told) == 4
    assert all(done <= of for _, done, of in told)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 3])
def test_the_checkpoint_is_that_of_the_same_rows(
    spark: SparkSession, tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, table = folder_of(tmp_path, workers), rows_of(5_000)
    (tmp_path / "data").mkdir()
    for k in range(3):  # several files, each of several row groups
        pq.write_table(table.slice(k * 1_700, 1_700), tmp_path / "data" / f"{k}.parquet", row_group_size=400)
    done = fill(config, spark, tmp_path / "data", tasks=4)
    assert (done.rows, done.shards) == ({"public.big": 5_000}, workers)

    settings = load(config)
    project, generation = read_project(settings), last_generation(settings.state)
    assert generation is not None
    manifest = read_manifest(generation.manifest)
    assert manifest is not None
    assert (manifest.epoch, manifest.workers, manifest.sources["lake"].place.order) == (1, workers, 1)
    assert manifest.commands["resynced"] == {"public.big": 1}, "whatever a load beside an earlier run had noted"
    assert {f.name for fs in manifest.arrangements.values() for f in fs} == set(os.listdir(generation.batches))
    schema = project.tables["public.big"]
    (name, layout), _ = table_traces("public.big", schema)
    found = []
    for shard in range(workers):
        files = [f for f in manifest.arrangements[name] if f.shard == shard]
        assert len(files) == 5, "a run of each task, and what ends them"
        batches = load_batches({name: files}, generation.batches, {name: layout})[name]
        found += content(layout, batches, 1).rows.to_pylist()
    wanted = pa.Table.from_batches(list(runs.conformed("public.big", schema, table.to_batches()))).to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert {row["who"] for row in found} == {None, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}

    plans = Plans.of(project.compile(), {"public.big": schema})
    flow = KeptDataflow(BatchStore(generation.batches))
    flow.build(plans, plans.schemas)
    flow.recover(2, manifest.arrangements, manifest.workers)
    list(flow.hydrating())
    view = {r["city"]: (r["n"], r["price"]) for r in flow.outputs["by_city"].snapshot(1)[0].rows.to_pylist()}
    naive: dict[Any, list[Any]] = {}
    for row in table.to_pylist():
        naive.setdefault(row["city"], []).append(row["price"])
    assert view == {c: (len(p), sum(x for x in p if x is not None)) for c, p in naive.items()}

    register(spark)
    read = spark.read.format("headrace").options(config=str(config), table="public.big", epoch="1").load()
    assert read.rdd.getNumPartitions() == workers, "a partition a shard"
    same = ["id", "city", "price", "at", "day", "raw", "real", "doc"]
    got = read.select(*same).toArrow().cast(table.select(same).schema).to_pylist()
    assert sorted(map(repr, got)) == sorted(map(repr, table.select(same).to_pylist()))
    whole = spark.read.format("headrace").options(config=str(config), view="by_city").load().collect()
    assert {r["city"]: (r["n"], r["price"]) for r in whole} == view
    spark.read.parquet(str(tmp_path / "data")).createOrReplaceTempView("big")
    for one in project.compile():
        got = spark.read.format("headrace").options(config=str(config), view=one.name).load().collect()
        judged = spark.sql(one.spec.sql.replace("public.big", "big")).collect()
        assert len(judged) > 4
        assert sorted(map(repr, map(tuple, got))) == sorted(map(repr, map(tuple, judged))), one.name


def layout_of(schema: Schema) -> Layout:
    return table_traces("public.big", schema)[0][1]


def made(folder: Path, schema: Schema, batches: Sequence[pa.RecordBatch], shards: int = 1) -> runs.Filled:
    folder.mkdir(exist_ok=True)
    return runs.Runs("public.big", schema, layout_of(schema), FolderBatches(folder), shards, 1).fill(batches)


def test_a_task_seals_bounded_runs_that_are_named_by_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is larger than a task's memory, and the same rows whichever runs there were."""
    schema = read_project(load(folder_of(tmp_path))).tables["public.big"]
    batches = list(runs.conformed("public.big", schema, rows_of(1_000).to_batches(max_chunksize=70)))
    layout, found = layout_of(schema), []
    for limit, several in (("RUN_ROWS", 100), ("RUN_BYTES", 20_000), ("RUN_ROWS", 10_000)):
        with monkeypatch.context() as patched:
            patched.setattr(runs, limit, several)
            filled = made(tmp_path / f"{limit}{several}", schema, batches)
            again = made(tmp_path / f"{limit}{several}", schema, batches)
        assert (again, filled.rows) == (filled, 1_000)
        assert (len(filled.files) == 1) == (several == 10_000)
        there = load_batches({"b": filled.files}, tmp_path / f"{limit}{several}", {"b": layout})["b"]
        spine = Spine(layout)
        for batch in there:
            spine.insert(batch)
        spine.insert(Batch.empty(layout, Description.epochs(0, 2, 1)))
        spine.exert(1 << 40)
        assert spine.snapshot(1).rows.equals(content(layout, there, 1).rows)
        found.append(content(layout, there, 1).rows)
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])


@pytest.mark.parametrize("seed", range(4))
def test_keys_in_two_runs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(runs, "RUN_ROWS", 50)
    monkeypatch.setattr(runs, "CHECKED_ROWS", draw.choice([1, 60, 10_000]))
    schema = read_project(load(folder_of(tmp_path))).tables["public.big"]
    rows = rows_of(400, seed)
    batches = list(runs.conformed("public.big", schema, rows.to_batches(max_chunksize=50)))
    filled, folder = made(tmp_path / "runs", schema, batches), FolderBatches(tmp_path / "runs")
    assert runs.checked(layout_of(schema), schema, folder, filled.files) == runs.Filled()
    twice = sorted(draw.sample(range(50), 3))
    other = made(tmp_path / "runs", schema, [batches[0].take(pa.array(twice))])
    found = runs.checked(layout_of(schema), schema, folder, [*filled.files, *other.files])
    assert "several rows" in found.why
    assert sorted(found.keys) == sorted(f"id={batches[0]['id'][k]}" for k in twice)
    many = made(tmp_path / "runs", schema, [batches[1]])
    assert len(runs.checked(layout_of(schema), schema, folder, [*filled.files, *many.files]).keys) == runs.SHOWN


def test_rows_without_a_key_stand_as_often_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RUN_ROWS", 3)
    schema = Schema.of([Column("a", BIGINT), Column("b", TEXT)], None)
    rows = pa.RecordBatch.from_pydict({"a": [1, 1, 2], "b": ["x", "x", None]}, schema=schema.arrow)
    filled = made(tmp_path / "runs", schema, [rows, rows])
    assert len(filled.files) == 2
    assert filled.files[0] == filled.files[1], "the same content is one file, and two batches"
    layout = layout_of(schema)
    there = load_batches({"b": filled.files}, tmp_path / "runs", {"b": layout})["b"]
    whole = content(layout, there, 1)
    assert sorted(zip(map(str, whole.rows.to_pylist()), whole.diffs.tolist(), strict=True)) == [
        ("{'a': 1, 'b': 'x'}", 4), ("{'a': 2, 'b': None}", 2),
    ]  # fmt: skip


def test_a_load_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """After a kill, or over what was loaded: the same input gives the same files, another one is named."""
    config, table = folder_of(tmp_path, workers=2), rows_of(500)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50)
    killed = take_generation(load(config).state)[0]
    (killed.batches / "left.0.new").write_bytes(b"what a load that was killed left")
    fill(config, spark, tmp_path / "rows.parquet", tasks=3)
    settings = load(config)
    before = read_manifest(last_generation(settings.state).manifest)  # type: ignore[union-attr]
    done = fill(config, spark, tmp_path / "rows.parquet", tasks=1, repeat=True)
    assert done.repeated
    assert done.rows == {"public.big": 500}
    pq.write_table(rows_of(500, seed=2), tmp_path / "rows.parquet", row_group_size=50)
    with pytest.raises(LoadError, match="not what was loaded") as caught:
        fill(config, spark, tmp_path / "rows.parquet", repeat=True)
    assert "public.big" in str(caught.value)
    assert read_manifest(last_generation(settings.state).manifest) == before  # type: ignore[union-attr]


def test_of_two_loads_at_once_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    config = folder_of(tmp_path)
    pq.write_table(rows_of(10), tmp_path / "rows.parquet")
    with taken(load(config)) as (ours, _), pytest.raises(LoadError, match="another load is under way"):
        fill(config, spark, tmp_path / "rows.parquet")
    later = take_generation(load(config).state)[0]  # of another machine, where no lock is seen
    with pytest.raises(StateError, match="another run has begun"):
        ours.begin_with(b"{}", set())
    later.discard()
    assert fill(config, spark, tmp_path / "rows.parquet").rows == {"public.big": 10}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"id": [1, 1, *range(2, 40)]}, "stands in several rows: id=1"),
        pytest.param({"id": [None, 1, *range(2, 40)]}, "a key is NULL: id=None", marks=pytest.mark.long),
        ({"free": ["x"] * 40}, "does not fit its column"),
        pytest.param({"city": None}, "no such column", marks=pytest.mark.long),
    ],
)
def test_what_stops_a_load_leaves_nothing(
    spark: SparkSession, tmp_path: Path, change: dict[str, Any], what: str
) -> None:
    config, table = folder_of(tmp_path), rows_of(40)
    for name, values in change.items():
        at = table.column_names.index(name)
        table = table.remove_column(at)
        if values is not None:
            table = table.append_column(name, pa.array(values))
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=20)
    with pytest.raises(LoadError, match=what):
        fill(config, spark, tmp_path / "rows.parquet", tasks=2)
    assert numbers(load(config).state) == []


def test_rows_of_a_query_are_those_of_its_answer(spark: SparkSession, tmp_path: Path) -> None:
    config, table = folder_of(tmp_path, 2), rows_of(3_000)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=500)
    csv = tmp_path / "rows.csv"
    csv.write_text("id,city\n" + "".join(f"{i},c{i % 7}\n" for i in range(9_000, 9_100)))
    rest = ", ".join("null" for _ in range(len(COLUMNS) - 2))
    query = (
        f"spark:select * from parquet.`{tmp_path}/rows.parquet` where city is not null union all "
        f"select id, city, {rest} from csv.`{csv}` with (header = 'true', inferSchema = 'true')"
    )
    done = load_tables(load(config), ["public.big"], Origin.parse(query), session=lambda _: spark)
    kept = [r for r in table.to_pylist() if r["city"] is not None]
    assert done.rows == {"public.big": len(kept) + 100}
    settings = load(config)
    schema = read_project(settings).tables["public.big"]
    (name, layout), _ = table_traces("public.big", schema)
    generation = last_generation(settings.state)
    assert generation is not None
    manifest = read_manifest(generation.manifest)
    assert manifest is not None
    found = []
    for shard in range(2):
        files = [f for f in manifest.arrangements[name] if f.shard == shard]
        found += content(
            layout, load_batches({name: files}, generation.batches, {name: layout})[name], 1
        ).rows.to_pylist()
    pairs = {(r["id"], r["city"]) for r in kept} | {(i, f"c{i % 7}") for i in range(9_000, 9_100)}
    assert {(r["id"], r["city"]) for r in found} == pairs
    wanted = {r["id"]: r for b in runs.conformed("public.big", schema, table.to_batches()) for r in b.to_pylist()}
    assert all(r == wanted[r["id"]] for r in found if r["id"] < 9_000)


def test_a_query_that_spark_refuses_or_that_is_to_be_repeated_says_so(spark: SparkSession, tmp_path: Path) -> None:
    settings = load(folder_of(tmp_path))
    for text, why in (("select * from nowhere", "Spark refuses the query"), ("selec", "Spark refuses the query")):
        with pytest.raises(LoadError, match=why):
            load_tables(settings, ["public.big"], Origin.parse(f"spark:{text}"), session=lambda _: spark)
    twice = "select 1 as id, * from values (1), (2) t(x)"
    with pytest.raises(LoadError, match="the data have no such column"):
        load_tables(settings, ["public.big"], Origin.parse(f"spark:{twice}"), session=lambda _: spark)
    with pytest.raises(LoadError, match="need not give its rows to the same tasks"):
        load_tables(settings, ["public.big"], Origin.parse("spark:x"), session=lambda _: spark, repeat=True)
    assert numbers(settings.state) == []


def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    config = folder_of(tmp_path)
    pq.write_table(rows_of(10), tmp_path / "rows.parquet")
    settings = load(config)
    with pytest.raises(LoadError, match="not a place"):
        Origin.parse("csv")
    with pytest.raises(LoadError, match="no such table"):
        load_tables(settings, ["public.other"], Origin("parquet", "x"), session=lambda _: spark)
    with pytest.raises(LoadError, match="no database"):
        load_tables(settings, ["public.big"], Origin("postgres"), session=lambda _: spark)
    with pytest.raises(LoadError, match="cannot be read"):
        fill(config, spark, tmp_path / "nothing")
    fill(config, spark, tmp_path / "rows.parquet")
    with pytest.raises(LoadError, match="has rows already"):
        fill(config, spark, tmp_path / "rows.parquet")
