"""A true sidecar over a true broker: tables of publishers are filled from files and lake tables while it runs, and go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from headrace.connectors.spark.follow import follow
from headrace.connectors.spark.kafka_producer import KafkaWire
from headrace.connectors.spark.publish import Dataset, Target, publish_version
from headrace.sidecar.config.config import load
from headrace.sidecar.control.client import Client, RemoteError
from headrace.sidecar.lake import load_beside as beside
from headrace.sidecar.lake.load import Loading, Origin
from headrace.sidecar.lake.runs import LoadError
from headrace.spark import register
from tests.connectors.spark.test_end_to_end import Lake, loaded

TABLE, STOCK, PRICES = "public.prices", "public.stock", "public.listed"
STOCKED = "select p.id, s.n, p.price from public.prices p join public.stock s on s.id = p.id"
Rows = Mapping[int, Any]


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, kafka: str, unique: str, tmp_path: Path
) -> Iterator[Lake]:  # fmt: skip
    """`request`: what `engine:` of the configuration says, where a test does."""
    register(spark)
    made = Lake(tmp_path, spark, kafka, unique)
    declare(made, lambda body: body.update(engine=getattr(request, "param", {})))
    loaded(made)
    made.start()
    made.until(made.shows, "the view holds what was loaded")
    yield made
    made.end()


def declare(lake: Lake, change: Callable[[dict[str, Any]], None], **views: str) -> None:
    """From now on headrace.yaml is as `change` leaves it, and the folder has these views too."""
    body = json.loads(lake.config.read_text())
    change(body)
    lake.config.write_text(json.dumps(body))
    path = lake.folder / "views" / "v.yaml"
    folder = json.loads(path.read_text())
    folder["views"] += [{"name": n, "sinks": ["bus"], "sql": text} for n, text in views.items()]
    path.write_text(json.dumps(folder))


def table(name: str, **columns: str) -> dict[str, Any]:
    return {"name": name, "key": ["id"], "columns": [{"name": n, "data_type": t} for n, t in columns.items()]}


def fill(lake: Lake, name: str, origin: str, **options: Any) -> Loading:
    return beside.load_beside(load(lake.config), [name], Origin.parse(origin), session=lambda _: lake.spark, **options)


def rows_of(lake: Lake, question: str) -> set[tuple[Any, ...]]:
    _, *parts = Client(load(lake.config)).stream("POST", "/query", {"sql": question, "json": True})
    return {tuple(row.values()) for part in parts for row in part["part"]}


def stocked(lake: Lake, stock: Rows) -> set[tuple[Any, ...]]:
    """The view, naively."""
    return {(i, stock[i], p) for i, (_, p) in lake.rows.items() if i in stock}


def shows(lake: Lake, stock: Rows) -> Callable[[], bool]:
    def told() -> set[tuple[Any, ...]]:
        found = rows_of(lake, "select id, n, price::text from stocked")
        return {(i, n, None if p is None else Decimal(p)) for i, n, p in found}

    return lambda: told() == stocked(lake, stock)


ENGINES = pytest.mark.parametrize(
    "lake", [{}, {"workers": 2, "intake": "shards"}], indirect=True, ids=["alone", "reading"]
)


@pytest.mark.timeout(600)
@ENGINES
def test_a_table_of_files_is_added_to_a_source_and_both_go_on(lake: Lake) -> None:
    declare(
        lake, lambda body: body["sources"][0]["tables"].append(table(STOCK, id="bigint", n="integer")), stocked=STOCKED
    )
    refused = lake.command("apply")
    assert refused.returncode == 4
    assert f"headrace load {STOCK}" in refused.stderr
    stock = {i: i % 9 for i in range(0, 400, 2)}
    path = lake.folder / "stock.parquet"

    def write(ids: list[int]) -> None:
        held = {"id": pa.array(ids, pa.int64()), "n": pa.array([stock[i] for i in ids], pa.int32())}
        pq.write_table(pa.table(held), path, row_group_size=40)

    write([*stock, 0])
    before = lake.status()["epoch"]
    with pytest.raises(LoadError, match="a key stands in several rows: id=0"):
        fill(lake, STOCK, f"parquet:{path}", tasks=3)
    write([*stock])
    with pytest.raises(RemoteError, match="the source has not come to the version"):
        fill(lake, STOCK, f"parquet:{path}", version=7)
    status = lake.status()
    assert (status["epoch"], [v["name"] for v in status["views"]]) == (before, ["by_city"]), "nothing was changed"
    done = fill(lake, STOCK, f"parquet:{path}", tasks=3)
    assert (done.rows, done.beside) == ({STOCK: 200}, True)
    lake.until(shows(lake, stock), "the view has all rows")
    lake.until(lambda: lake.status()["epoch"] == before + 1, "the rows are one epoch")
    assert not list((lake.folder / "state" / "loads").iterdir()), "the files are gone"
    assert "nothing to do" in lake.command("apply").stdout
    with pytest.raises(RemoteError, match="reads the table already"):
        fill(lake, STOCK, f"parquet:{path}")
    again = lake.command("load", STOCK, "--from", f"parquet:{path}", "--repeat")
    assert (again.returncode, "a sidecar is running" in again.stderr) == (5, True)

    prices, held = lake.frame(lake.rows), lake.spark.createDataFrame([*stock.items()], "id long, n int")
    lake.rows = {**{k: v for k, v in lake.rows.items() if k % 7}, 500: ("Sion", Decimal("9.99"))}
    stock = {**{i: n + 1 for i, n in stock.items() if i % 5}, 500: 3}
    target = Target(lake.name, {"bootstrap.servers": lake.kafka}, partitions=2)
    now = lake.spark.createDataFrame([*stock.items()], "id long, n int")
    sets = [Dataset(TABLE, lake.frame(lake.rows), ["id"], prices), Dataset(STOCK, now, ["id"], held)]
    assert publish_version(lake.spark, sets, target, version=2).version == 2
    lake.until(shows(lake, stock), "the view holds version 2")
    assert lake.shows()
    lake.kill()
    lake.start()
    lake.until(shows(lake, stock), "the same after a kill")
    lake.until(lambda: lake.status()["sources"][0].get("version") == "2", "it stands at version 2")
    assert lake.in_error() == set()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_table_of_a_query_is_added_to_a_source(lake: Lake) -> None:
    """What Spark's SQL gives of a CSV file, beside a running sidecar; a query that fails changes nothing."""
    declare(
        lake, lambda body: body["sources"][0]["tables"].append(table(STOCK, id="bigint", n="integer")), stocked=STOCKED
    )
    stock = {i: i % 9 for i in range(0, 400, 2)}
    (lake.folder / "stock.csv").write_text("id,n\n" + "".join(f"{i},{n}\n" for i, n in stock.items()))
    rows = f"csv.`{lake.folder}/stock.csv` with (header = 'true')"
    before = lake.status()["epoch"]
    for query, said in (
        (f"spark:select id, m from {rows}", "cannot be resolved"),
        (
            f"spark:select cast(id as bigint) as id, cast(n as int) as n from {rows} union all select 0, 1",
            "several rows: id=0",
        ),
    ):
        with pytest.raises(LoadError, match=said):
            fill(lake, STOCK, query)
    status = lake.status()
    assert (status["epoch"], [v["name"] for v in status["views"]]) == (before, ["by_city"]), "nothing was changed"
    done = fill(lake, STOCK, f"spark:select cast(id as bigint) as id, cast(n as int) as n from {rows}")
    assert (done.rows, done.beside) == ({STOCK: 200}, True)
    lake.until(shows(lake, stock), "the view has all rows")
    assert lake.status()["epoch"] == before + 1, "the rows are one epoch"
    lake.kill()
    lake.start()
    lake.until(shows(lake, stock), "the same after a kill")
    target = Target(lake.name, {"bootstrap.servers": lake.kafka}, partitions=2)
    held = lake.spark.createDataFrame([*stock.items()], "id long, n int")
    stock = {**{i: n + 1 for i, n in stock.items() if i % 5}, 500: 3}
    now = lake.spark.createDataFrame([*stock.items()], "id long, n int")
    prices = lake.frame(lake.rows)
    assert publish_version(lake.spark, [Dataset(TABLE, prices, ["id"], prices), Dataset(STOCK, now, ["id"], held)], target,
                           version=2).version == 2  # fmt: skip
    lake.until(shows(lake, stock), "it goes on with version 2")


class OfDelta:
    """A Delta table, of which `path` names version 2."""

    def __init__(self, folder: Path) -> None:
        from tests.connectors.spark.test_follow import Table

        self.table = Table(folder / "delta")
        self.table.write({1: "a", 2: "b", 3: None})
        self.table.update(2, "c")
        self.table.delete(3)
        self.origin, self.version, self.held = f"delta:{self.table.path}@2", 3, dict(self.table.held[-1])

    def goes_on(self) -> dict[int, str | None]:
        self.table.write({4: "d", 5: None})
        self.table.update(1, "e")
        return self.table.held[-1]


class OfIceberg:
    """An Iceberg table, of which `path` names a snapshot."""

    def __init__(self, folder: Path) -> None:
        from tests.connectors.spark.test_follow_iceberg import Ice

        self.table = Ice(folder / "ice")
        self.table.append({1: "a", 2: "b", 3: None})
        self.table.delete(3)
        at = self.table.made.current_snapshot()
        self.origin, self.version = f"iceberg:{self.table.path}@{at.snapshot_id}", self.table.sequence
        self.held = dict(self.table.now)

    def goes_on(self) -> dict[int, str | None]:
        self.table.append({4: "d", 5: None})
        self.table.delete(1)
        return dict(self.table.now)


@pytest.mark.filterwarnings("ignore")  # what pyiceberg warns of is its own
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [OfDelta, OfIceberg])
@ENGINES
def test_a_lake_table_is_added_as_a_source_of_its_own_and_is_followed(
    lake: Lake, unique: str, tmp_path: Path, kind: type[OfDelta | OfIceberg]
) -> None:
    pytest.importorskip("deltalake" if kind is OfDelta else "pyiceberg")
    of, prefix = kind(tmp_path), f"{unique}.listed"

    def held() -> dict[Any, Any]:
        return dict(rows_of(lake, "select id, price from wares"))  # type: ignore[arg-type]

    source = {
        "name": "listed",
        "type": "spark",
        "topic_prefix": prefix,
        "tables": [table(PRICES, id="bigint", price="text")],
    }
    declare(lake, lambda body: body["sources"].append(source), wares="select id, price from public.listed")
    assert fill(lake, PRICES, of.origin).rows == {PRICES: 2}
    lake.until(lambda: held() == of.held, "the view has the version's rows")
    at = {"lake": "1", "listed": str(of.version)}
    lake.until(
        lambda: {s["name"]: s.get("version") for s in lake.status()["sources"]} == at, "it stands at its version"
    )
    now = of.goes_on()
    feed, wire = of.table.feed, KafkaWire({"bootstrap.servers": lake.kafka}, 1)
    done = list(follow(Named(feed), prefix, wire, partitions=2, loaded=of.version))
    assert done[0].version == of.version + 1
    lake.until(lambda: held() == now, "the view has the newest rows")
    lake.kill()
    lake.start()
    lake.until(lambda: held() == now, "the same after a kill")
    assert lake.shows()


class Named:
    """A feed under the name that this file's table has."""

    def __init__(self, feed: Any) -> None:
        self._feed, self.table = feed, PRICES

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)
