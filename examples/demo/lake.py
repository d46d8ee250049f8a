"""The supplier's price list as a Spark job: `python -m examples.demo.lake FOLDER BOOTSTRAP FIRST SECONDS`.
The database's URL, which holds a password, comes by the environment (`shop.URL`).

Writes a Parquet file, publishes it as a version, waits, writes a second one and publishes that: changed prices, new and
withdrawn products. Each version also goes to Postgres (`lake.versions`), where the comparison reads the one it needs.
"""

from __future__ import annotations

import os
import random
import sys
import time
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from examples.demo.shop import URL
from headrace.connectors.spark.publish import publish
from headrace.connectors.spark.session import local_session

SCHEMA = pa.schema(
    [
        pa.field("supplier", pa.string(), nullable=False),
        pa.field("product_id", pa.int32(), nullable=False),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("valid_from", pa.timestamp("us")),
    ]
)
DDL = """
create schema if not exists lake;
create table if not exists lake.versions (version bigint, supplier text, product_id integer, price numeric(10,2),
  valid_from timestamp, primary key (version, supplier, product_id));
create or replace view lake.supplier_prices as
  select supplier, product_id, price, valid_from from lake.versions
  where version = current_setting('headrace.lake_version')::bigint;
"""


def price_list(version: int, products: int) -> list[tuple[str, int, Decimal | None, int]]:
    """Version `version` of the list: (supplier, product, price or None, valid from in µs)."""
    draw = random.Random(version)  # noqa: S311 (a demo's data)
    rows = []
    for supplier in ("Alpina", "Helvetia", "Jura", "Rhône"):
        for product in range(1, products + 1):
            if draw.random() < 0.9:
                price = None if draw.random() < 0.05 else Decimal(draw.randrange(50, 9_000)) / 100
                rows.append((supplier, product, price, 1_767_225_600_000_000 + version * 1_000_001))
    return rows


def main(folder: Path, bootstrap: str, url: str, first: int, pause: float) -> None:
    """Publish versions `first` and `first` + 1, `pause` seconds apart."""
    session = local_session(folder / "spark", cores=1)
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute("select count(*) from products").fetchone()
        products = found[0] if found else 0
        for version in (first, first + 1):
            rows = price_list(version, products)
            path = folder / f"prices-{version}.parquet"
            columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
            pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), path)
            with db.transaction(), db.cursor() as cursor:
                cursor.execute("delete from lake.versions where version = %s", (version,))
                with cursor.copy("copy lake.versions from stdin") as copy:
                    for supplier, product, price, at in rows:
                        copy.write_row((version, supplier, product, price, _moment(at)))
            done = publish(
                session, session.read.parquet(str(path)), table="lake.supplier_prices", key=["supplier", "product_id"],
                topic_prefix="lake", kafka={"bootstrap.servers": bootstrap}, version=version, state=folder / "published",
                partitions=2,
            )  # fmt: skip
            sys.stdout.write(f"published version {done.version}, attempt {done.attempt}\n")
            sys.stdout.flush()
            if version == first:
                time.sleep(pause)
    session.stop()


def _moment(micros: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(micros // 1_000_000)) + f".{micros % 1_000_000:06}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], os.environ[URL], int(sys.argv[3]), float(sys.argv[4]))
