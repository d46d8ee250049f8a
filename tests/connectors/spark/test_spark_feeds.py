"""Following through Spark, as far as it needs no session: what is refused before one starts, and what it is told."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from headrace.connectors.spark import follow_cli, spark_feeds
from headrace.connectors.spark.datasets import parse
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.iceberg_history import IcebergHistory, Snapshot
from headrace.connectors.spark.lake_feed import At
from headrace.connectors.spark.spark_iceberg_feed import SparkIcebergFeed

DELTA, ICEBERG = "public.a(id)=delta:/lake/a", "public.b(id)=iceberg:prod.shop.b"


class History(IcebergHistory):
    """Snapshots of these numbers, the last of them current; each is a child of the one before it."""

    table = "public.b"

    def __init__(self, *sequences: int) -> None:
        self.sequences = sequences

    def lineage(self) -> list[Snapshot]:
        return [Snapshot(s, 100 + s, None, 0, 0) for s in reversed(self.sequences)]


def test_a_release_without_jars_of_the_lakes_is_named_before_a_session_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for fits in ("4.0.1", "4.1.4", "4.2.0"):
        spark_feeds.check_release(fits)
    monkeypatch.setattr(spark_feeds, "version", lambda _: "4.3.0")
    monkeypatch.setattr(follow_cli, "open_session", lambda *_: pytest.fail("a session was started"))
    done = CliRunner().invoke(follow_cli.app, [DELTA, "--through", "spark", "--describe"])
    assert done.exit_code == 1
    assert "do not run on pyspark 4.3.0" in done.output
    assert "pyspark==4.1" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--spark", "a=b"], "go with --through spark"),
        (["--master", "local[1]"], "go with --through spark"),
        (["--through", "spark", "--storage", "a=b"], "--storage goes with deltalake and pyiceberg"),
    ],
)
def test_options_of_the_other_way_are_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(follow_cli.app, [DELTA, "--describe", *words])
    assert done.exit_code == 1
    assert said in done.output


def test_a_session_is_told_what_its_tables_need_and_what_the_user_says_wins() -> None:
    both = [parse(text, "delta") for text in (DELTA, ICEBERG)]
    told = spark_feeds.session_settings(both, {"spark.sql.catalog.prod.type": "rest"})
    assert told["spark.sql.extensions"] == (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    assert told["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    assert told["spark.sql.catalog.prod.type"] == "rest"
    assert told["spark.sql.catalog.prod.cache-enabled"] == "false", "a new snapshot is seen at once"
    assert "spark.sql.catalog.spark_catalog" not in spark_feeds.session_settings(both[1:], {})
    given = {"spark.sql.extensions": "mine"}
    assert spark_feeds.session_settings(both, given)["spark.sql.extensions"] == "mine"


@pytest.mark.parametrize("name", ["/lake/b", "shop.b", "prod.shop.`b`", "prod.shop.b'", "s3://lake/b", "prod..b"])
def test_what_names_no_table_of_a_catalog_is_refused(name: str) -> None:
    with pytest.raises(PublishError, match="by its catalog"):
        spark_feeds.session_settings([parse(f"public.b(id)=iceberg:{name}", "delta")], {})


def test_other_datasets_are_refused() -> None:
    with pytest.raises(PublishError, match="only Delta and Iceberg"):
        spark_feeds.session_settings([parse("public.a(id)=csv:/a.csv", "delta")], {})


def test_a_changelog_is_asked_for_between_two_snapshots_by_the_key() -> None:
    session: Any = None
    feed = SparkIcebergFeed(session, "prod.shop.b", "public.b", ("id",))
    text = feed._call(Snapshot(3, 33, 22, 0, 0), ["it's", "a\\b"])
    assert "map('end-snapshot-id', '33', 'start-snapshot-id', '22')" in text
    assert r"identifier_columns => array('it\'s', 'a\\b'), compute_updates => true" in text
    assert "start-snapshot-id" not in feed._call(Snapshot(1, 11, None, 0, 0), ["id"])


def test_snapshots_are_numbered_by_their_sequence_and_gaps_are_named() -> None:
    history = History(2, 3, 5)
    assert history.after(3) == [At(5, "105")]
    assert history.after(0) == [At(2, "102"), At(3, "103"), At(5, "105")]
    assert history.at(3) == At(3, "103")
    for ask in (lambda: history.after(1), lambda: history.after(4), lambda: history.at(4)):
        with pytest.raises(PublishError, match="not in the table's history"):
            ask()
