"""How a dataset is spelled, which driver its URL needs, and what is kept of a Spark exception."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from headrace.connectors.spark.datasets import connection_of, jdbc_options, parse
from headrace.connectors.spark.errors import PublishError, cause


@pytest.mark.parametrize(
    ("text", "format", "path"),
    [
        ("public.p(id)=rows.parquet", "parquet", "rows.parquet"),
        ("public.p(id)=csv:/data/rows.csv", "csv", "/data/rows.csv"),
        ("public.p(id)=s3a://bucket/rows", "parquet", "s3a://bucket/rows"),
        ("public.p(id)=json:s3a://bucket/rows", "json", "s3a://bucket/rows"),
        ("public.p(id)=file:/data/rows", "parquet", "file:/data/rows"),
        ("public.p(id)=jdbc", "jdbc", None),
        ("public.p(id)=jdbc:other.name", "jdbc", "other.name"),
    ],
)
def test_spelling(text: str, format: str, path: str | None) -> None:
    named = parse(text, "parquet")
    assert (named.table, named.key, named.format, named.path) == ("public.p", ("id",), format, path)


@pytest.mark.parametrize("text", ["p(id)=x", "public.p=x", "public.p()=x"])
def test_what_is_no_dataset(text: str) -> None:
    with pytest.raises(PublishError, match="not a dataset"):
        parse(text, "parquet")


def test_the_url_names_the_driver_unless_one_is_given() -> None:
    assert jdbc_options({"url": "jdbc:postgresql://db/shop"})["driver"] == "org.postgresql.Driver"
    assert jdbc_options({"url": "jdbc:mysql://db/shop", "driver": "mine"})["driver"] == "mine"
    assert "driver" not in jdbc_options({"url": "jdbc:unheard://x"})


def test_the_database_of_a_url() -> None:
    found = connection_of({"url": "jdbc:postgresql://db:5433/shop?user=u&sslmode=require", "password": "p"})
    assert found == {
        "host": "db", "port": "5433", "dbname": "shop", "user": "u", "password": "p", "sslmode": "require",
        "application_name": "headrace-publish",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03", "[PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03"),
        (
            "An error occurred while calling o1.load.\n: java.lang.ClassNotFoundException: mine\n\tat java.base/x",
            "ClassNotFoundException: mine",
        ),
        (
            "Job aborted\n\tat x\nCaused by: org.a.Outer: first\n\tat y\n"
            "Caused by: java.lang.RuntimeException: not a Parquet file",
            "RuntimeException: not a Parquet file",
        ),
        (
            "Job aborted\nTraceback (most recent call last):\n  File\nheadrace.connectors.spark.errors.PublishError: "
            "told to fail (topic=t)\n\n\tat org.apache\nCaused by: java.lang.X: y",
            "told to fail (topic=t)",
        ),
    ],
)  # fmt: skip
def test_the_cause_of_an_exception(text: str, said: str) -> None:
    assert cause(text) == said


def test_a_cause_is_no_longer_than_a_screen() -> None:
    assert len(cause("x" * 9999)) < 700
