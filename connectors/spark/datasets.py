"""The datasets that a command line names, and how Spark reads each: format, path, JDBC driver, one snapshot for several.

Always: a dataset is read as what its own spelling says, else as `--format` says. JDBC tables of one Postgres are read in
one snapshot of it, which `one_snapshot` holds open. Called by `headrace-publish`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from headrace.connectors.spark.errors import PublishError, cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DATASET = re.compile(r"^(?P<table>[^.(=]+\.[^.(=]+)\((?P<key>[^)]+)\)(?:=(?P<rest>.+))?$")
_FORMATS = ("parquet", "csv", "json", "orc", "avro", "text", "xml", "delta", "iceberg", "jdbc")
_DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "h2": "org.h2.Driver",
    "derby": "org.apache.derby.jdbc.EmbeddedDriver",
    "sqlite": "org.sqlite.JDBC",
    "snowflake": "net.snowflake.client.jdbc.SnowflakeDriver",
}
_FETCHED = "10000"


@dataclass(frozen=True)
class Named:
    """One dataset as it was named: `path` is None for a JDBC table under its own name."""

    table: str
    key: tuple[str, ...]
    format: str
    path: str | None


def parse(text: str, format: str) -> Named:
    """'schema.table(key,…)[=[FORMAT:]PATH]'; `format` is that of datasets which name none. Raises PublishError."""
    match = _DATASET.match(text)
    if not match:
        raise PublishError("not a dataset", value=text, hint="write 'schema.table(key,…)=path' or '…=csv:path'")
    own, path = split(match["rest"])
    return Named(match["table"], tuple(k.strip() for k in match["key"].split(",")), own or format, path)


def split(rest: str | None) -> tuple[str | None, str | None]:
    """'[FORMAT:]PATH' as (format, path). An address such as s3a://… names no format."""
    if rest is None:
        return None, None
    if rest == "jdbc":
        return rest, None
    word, colon, path = rest.partition(":")
    if colon and word in _FORMATS and not path.startswith("//"):
        return word, path
    return None, rest


def read(session: SparkSession, named: Named, options: Mapping[str, str]) -> DataFrame:
    """The dataset's rows. Raises PublishError."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    reader = session.read.format(named.format)
    for name, value in (jdbc_options(options) if named.format == "jdbc" else options).items():
        reader = reader.option(name, value)
    try:
        if named.format != "jdbc":
            if named.path is None:
                raise PublishError(
                    "a dataset without a path", table=named.table, format=named.format,
                    hint="write 'schema.table(key)=path', or '=jdbc' for a table of a database",
                )  # fmt: skip
            return reader.load(named.path)
        if named.path is not None:
            return reader.option("dbtable", named.path).load()
        return (reader if "query" in options else reader.option("dbtable", options.get("dbtable", named.table))).load()
    except (PySparkException, Py4JError) as error:
        raise PublishError(
            f"the dataset cannot be read: {cause(str(error))}", table=named.table, format=named.format,
            path=named.path, hint="is it of that format? Each dataset may name its own: 'schema.table(key)=csv:path'",
        ) from error  # fmt: skip


def jdbc_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a JDBC reader, with the driver that its URL needs."""
    kind = options.get("url", "").removeprefix("jdbc:").partition(":")[0]
    driver = {"driver": _DRIVERS[kind]} if kind in _DRIVERS else {}
    return {**driver, "fetchsize": _FETCHED, **options}


@contextmanager
def one_snapshot(named: Sequence[Named], options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The reader's options under which all JDBC tables of one Postgres show the same moment, held while inside.

    Databases of other kinds, and sessions that run statements of their own, are read as they stand at each query.
    """
    given = dict(options)
    ours = any(n.format == "jdbc" for n in named) and options.get("url", "").startswith("jdbc:postgresql:")
    if not ours or "sessionInitStatement" in options:
        yield given
        return
    import psycopg
    from psycopg.conninfo import make_conninfo

    try:
        with psycopg.connect(make_conninfo(**connection_of(options))) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.read_only = True
            row = holder.execute("select pg_export_snapshot()").fetchone()
            assert row is not None
            begin = f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{row[0]}'"
            yield {**given, "sessionInitStatement": begin}
    except psycopg.Error as error:
        raise PublishError(
            f"no snapshot of the database: {str(error).strip().splitlines()[0]}",
            hint="is the address under `url` right, and the user's password?",
        ) from error


def connection_of(options: Mapping[str, str]) -> dict[str, str]:
    """psycopg's parameters for the database that a jdbc:postgresql URL names."""
    found = urlsplit(options["url"].removeprefix("jdbc:"))
    asked = {name: values[-1] for name, values in parse_qs(found.query).items()}
    told = {
        "host": found.hostname or "localhost",
        "port": str(found.port or 5432),
        "dbname": found.path.lstrip("/"),
        "user": options.get("user", asked.get("user", "")),
        "password": options.get("password", asked.get("password", "")),
        "sslmode": asked.get("sslmode", ""),
        "application_name": "headrace-publish",
    }
    return {name: value for name, value in told.items() if value}


def with_path(named: Named, text: str) -> Named:
    """The same table read from the place that `--previous` names."""
    own, path = split(text)
    return replace(named, format=own or named.format, path=path)
