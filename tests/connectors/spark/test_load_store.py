"""A load into a store of objects: the first run goes on from it, and a state that has something is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from headrace.connectors.spark.publish import Dataset, Target, publish_version
from headrace.sidecar.config.config import load
from headrace.sidecar.lake.empty_state import taken
from headrace.sidecar.lake.load import Origin, load_tables
from headrace.sidecar.lake.runs import LoadError
from headrace.sidecar.state.checkpoint import manifest_of
from headrace.sidecar.wiring.run_states import newest_run, objects_of
from headrace.spark import register
from tests.connectors.spark.test_end_to_end import TABLE, Lake, loaded
from tests.sidecar.support.s3 import BUCKET, S3Server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    with S3Server() as started:
        yield started


@pytest.fixture(params=["s3", pytest.param("shared folder", marks=pytest.mark.long)])
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, kafka: str, unique: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lake]:  # fmt: skip
    register(spark)
    made = Lake(tmp_path, spark, kafka, unique)
    body = json.loads(made.config.read_text())
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("server")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        access = {"access_key_id": "key", "secret_access_key": "secret"}  # tasks run in processes that began before
        body |= {"state": f"s3://{BUCKET}/{unique}", "store": {"endpoint": server.url, "region": "us-east-1", **access}}
    else:
        body["state"] = f"file://{tmp_path}/shared"
    made.config.write_text(json.dumps({**body, "reclock": "kafka", "engine": {"workers": 2}}))
    yield made
    made.end()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_store_is_filled_and_gone_on_from(lake: Lake) -> None:
    loaded(lake)
    settings = load(lake.config)
    run, objects = newest_run(settings), objects_of(settings)
    assert run is not None
    assert objects is not None
    manifest = manifest_of(run)
    assert manifest is not None
    named = {f.name for files in manifest.arrangements.values() for f in files}
    assert named == {n.removeprefix("batches/") for n in objects.names("batches/")}
    assert {r["id"]: (r["city"], r["price"]) for r in lake.read(table=TABLE)} == lake.rows, "before any run"
    assert lake.seen() == lake.answer()

    origin = Origin("parquet", str(lake.folder / "prices.parquet"))
    with pytest.raises(LoadError, match="has rows already"):
        load_tables(settings, [TABLE], origin, session=lambda _: lake.spark)
    assert load_tables(settings, [TABLE], origin, session=lambda _: lake.spark, repeat=True).repeated
    assert named == {n.removeprefix("batches/") for n in objects.names("batches/")}, "the second took its files away"

    lake.start()
    lake.until(lake.shows, "the view holds what was loaded")
    with pytest.raises(LoadError, match="a sidecar is running"):
        load_tables(settings, [TABLE], origin, session=lambda _: lake.spark)
    before = lake.frame(lake.rows)
    lake.rows = {**{k: v for k, v in lake.rows.items() if k % 7}, 500: ("Sion", Decimal("9.99"))}
    target = Target(lake.name, {"bootstrap.servers": lake.kafka}, partitions=2)
    publish_version(lake.spark, [Dataset(TABLE, lake.frame(lake.rows), ["id"], previous=before)], target, version=2)
    lake.until(lake.shows, "the view holds version 2")
    lake.kill()
    lake.start()
    lake.until(lake.shows, "and does after a restart")


@pytest.mark.timeout(300)
def test_a_later_load_or_run_wins_and_the_first_is_refused(lake: Lake) -> None:
    settings = load(lake.config)
    with taken(settings) as (first, _):
        other = load(lake.config)
        other.config = other.config.model_copy(
            update={"store": other.config.store.model_copy(update={"folder": "./elsewhere"})}
        )
        with taken(other) as (second, _):  # of another machine, where no lock is seen
            second.begin_with(b'{"second": 1}', frozenset())
        with pytest.raises(Exception, match=r"another run has|has rows already"):
            first.begin_with(b'{"first": 1}', frozenset())
    there = newest_run(settings)
    assert there is not None
    assert there.read_manifest() == b'{"second": 1}'


@pytest.mark.timeout(300)
def test_epochs_of_another_beginning_are_noticed(lake: Lake) -> None:
    from headrace.sidecar.wiring.factories import make_epoch_topic

    topic = make_epoch_topic(load(lake.config))
    topic.open()
    topic.append(b"a line\n")
    topic.close()
    with pytest.raises(LoadError, match="has rows already"):
        loaded(lake)
