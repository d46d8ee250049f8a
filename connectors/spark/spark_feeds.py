"""The Spark session that follows lake tables (`headrace-publish follow --through spark`), and the feeds that it reads.

Always: what cannot work is refused before a session starts: a release of pyspark that the lakes' jars do not run on, a name that
no catalog has. Called by the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from headrace.connectors.spark import spark_delta_feed, spark_iceberg_feed
from headrace.connectors.spark.datasets import Named
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.lake_feed import Feed
from headrace.connectors.spark.spark_delta_feed import SparkDeltaFeed
from headrace.connectors.spark.spark_iceberg_feed import SparkIcebergFeed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = "spark.sql.extensions"
_FAILS_SINCE = (4, 3)
"""The release of Spark on which no released jars of Delta and Iceberg run: they fail by NoSuchMethodError."""


def check_release(pyspark: str) -> None:
    """Raise PublishError where no jars of Delta and Iceberg run on this release of pyspark.

    >>> check_release("4.1.4")
    """
    if tuple(map(int, re.findall(r"\d+", pyspark)[:2])) >= _FAILS_SINCE:
        raise PublishError(
            f"the jars of Delta and Iceberg do not run on pyspark {pyspark}", pyspark=pyspark,
            hint="pip install 'pyspark==4.1.*', with a Java 17 or 21; or follow without --through spark",
        )  # fmt: skip


def check_installed() -> None:
    """`check_release` of the pyspark that is installed. Raises PublishError where there is none."""
    try:
        check_release(version("pyspark"))
    except PackageNotFoundError as error:
        raise PublishError("pyspark is not installed", hint="pip install 'pyspark==4.1.*'") from error


def session_settings(named: Sequence[Named], given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session that reads these tables; `given` ones win. Raises PublishError for what is no lake table."""
    made: dict[str, str] = {}
    extensions: list[str] = []
    for dataset in named:
        own = spark_delta_feed.SETTINGS if _is_delta(dataset) else spark_iceberg_feed.settings(str(dataset.path))
        extensions += [own[_EXTENSIONS]] if own[_EXTENSIONS] not in extensions else []
        made |= own
    return {**made, _EXTENSIONS: ",".join(extensions), **given}


def feed(session: SparkSession, named: Named) -> Feed:
    """What a dataset names, as the session reads it. Raises PublishError for what has no changes of its own."""
    of: type[SparkDeltaFeed | SparkIcebergFeed] = SparkDeltaFeed if _is_delta(named) else SparkIcebergFeed
    return of(session, str(named.path), named.table, named.key)


def _is_delta(named: Named) -> bool:
    if named.format not in ("delta", "iceberg") or named.path is None:
        raise not_followed(named)
    return named.format == "delta"


def not_followed(named: Named) -> PublishError:
    """The error of a dataset that tells no changes of its own."""
    return PublishError("only Delta and Iceberg tables are followed", table=named.table,
                        hint="'schema.table(key)=delta:path' or '…=iceberg:catalog.namespace.table'")  # fmt: skip
