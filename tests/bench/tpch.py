"""Rows of TPC-H's tables, made by numpy: the shapes and distributions of the benchmark's own generator, not its bytes.

Always: the same scale gives the same rows; amounts are cents, discounts and taxes per cents, dates integers yyyymmdd, flags
the codes of their letters, texts padded with blanks; columns that no query of `READS` reads are left out. `write` gives
every row an epoch of its own, or so many rows one: nations and regions first, then all others in one random order. Called by
bench_tpch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.bench.peers import columns
from tests.bench.peers.columns import Lane

Table = Mapping[str, Lane]

READS = {
    "q1": ("lineitem",),
    "q3": ("customer", "orders", "lineitem"),
    "q5": ("nation", "region", "customer", "orders", "lineitem", "supplier"),
    "q6": ("lineitem",),
    "q9": ("nation", "part", "supplier", "lineitem", "partsupp", "orders"),
    "q18": ("customer", "orders", "lineitem"),
}
"""Query → the tables that it reads."""

FIRST = ("nation", "region")

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    "ALGERIA 0|ARGENTINA 1|BRAZIL 1|CANADA 1|EGYPT 4|ETHIOPIA 0|FRANCE 3|GERMANY 3|INDIA 2|INDONESIA 2|IRAN 4|IRAQ 4|JAPAN 2|"
    "JORDAN 4|KENYA 0|MOROCCO 0|MOZAMBIQUE 0|PERU 1|CHINA 2|ROMANIA 3|SAUDI ARABIA 4|VIETNAM 2|RUSSIA 3|UNITED KINGDOM 3|"
    "UNITED STATES 1"
)
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
COLOURS = 92
"""A part's name has five different ones of so many words, of which one is `green`."""

START, LAST, SHIPPED = (np.datetime64(day, "D") for day in ("1992-01-01", "1998-08-02", "1995-06-17"))
"""First and last day of an order; lines received after the third are not returned, those shipped after it are open."""


def tables(scale: float) -> dict[str, Table]:
    """All tables; `scale` 1 has six million lines."""
    random = np.random.default_rng(1992)
    suppliers, parts, customers, orders = (max(int(n * scale), 20) for n in (10_000, 200_000, 150_000, 1_500_000))
    names, regions = zip(*(nation.rsplit(" ", 1) for nation in NATIONS.split("|")), strict=True)
    made: dict[str, Table] = {
        "region": {"regionkey": np.arange(len(REGIONS)), "name": _texts(REGIONS, 16)},
        "nation": {
            "nationkey": np.arange(len(names)), "name": _texts(names, 16), "regionkey": np.array(regions, np.int64),
        },
        "supplier": {"suppkey": np.arange(1, suppliers + 1), "nationkey": random.integers(0, 25, suppliers)},
        "customer": {
            "custkey": np.arange(1, customers + 1),
            "name": _texts([f"Customer#{k:09}" for k in range(1, customers + 1)], 24),
            "nationkey": random.integers(0, 25, customers),
            "mktsegment": _texts(SEGMENTS, 16)[random.integers(0, len(SEGMENTS), customers)],
        },
        "part": {"partkey": np.arange(1, parts + 1), "name": _part_names(random, parts)},
        "partsupp": {
            "partkey": np.repeat(np.arange(1, parts + 1), 4),
            "suppkey": _supplier(np.repeat(np.arange(1, parts + 1), 4), np.tile(np.arange(4), parts), suppliers),
            "supplycost": random.integers(100, 100_001, 4 * parts),
        },
    }  # fmt: skip
    return made | _orders(random, orders, customers, parts, suppliers)


def _orders(random: np.random.Generator, count: int, customers: int, parts: int, suppliers: int) -> dict[str, Table]:
    """Orders and their lines: keys with gaps, a third of the customers without orders, one to seven lines an order."""
    keys = np.arange(count) // 8 * 32 + np.arange(count) % 8 + 1
    customer = random.integers(1, customers + 1, count)
    placed = START + random.integers(0, (LAST - START).astype(int) + 1, count)
    lines = random.integers(1, 8, count)
    size = int(lines.sum())
    part, quantity = random.integers(1, parts + 1, size), random.integers(1, 51, size)
    price = quantity * (90_000 + part // 10 % 20_001 + 100 * (part % 1000))
    discount, tax = random.integers(0, 11, size), random.integers(0, 9, size)
    shipped = np.repeat(placed, lines) + random.integers(1, 122, size)
    late = shipped + random.integers(1, 31, size) > SHIPPED
    flags = np.where(late, ord("N"), np.where(random.integers(0, 2, size), ord("R"), ord("A")))
    order = np.repeat(np.arange(count), lines)
    charged = price * (100 - discount) * (100 + tax) // 10_000
    lineitem = {
        "orderkey": keys[order], "linenumber": np.arange(size) - np.repeat(np.cumsum(lines) - lines, lines) + 1,
        "partkey": part, "suppkey": _supplier(part, random.integers(0, 4, size), suppliers), "quantity": quantity,
        "extendedprice": price, "discount": discount, "tax": tax, "returnflag": flags,
        "linestatus": np.where(shipped > SHIPPED, ord("O"), ord("F")), "shipdate": _written(shipped),
    }  # fmt: skip
    orders = {
        "orderkey": keys, "custkey": customer - (customer % 3 == 0),
        "totalprice": np.bincount(order, charged, count).astype(np.int64), "orderdate": _written(placed),
        "shippriority": np.zeros(count, np.int64),
    }  # fmt: skip
    return {"orders": orders, "lineitem": lineitem}


def write(folder: Path, made: Mapping[str, Table], query: str, together: int = 1) -> int:
    """Write what a query reads to `folder/TABLE.*`, `together` rows an epoch; returns how many rows that are."""
    small = [name for name in READS[query] if name in FIRST]
    large = [name for name in READS[query] if name not in FIRST]
    random = np.random.default_rng(1998)
    first = sum(_rows(made[name]) for name in small)
    order = random.permutation(sum(_rows(made[name]) for name in large)) + first
    epochs = np.concatenate([np.arange(first), order])
    at = 0
    for name in [*small, *large]:
        size = _rows(made[name])
        when = epochs[at : at + size]
        sorted_ = np.argsort(when)
        columns.write(
            folder / name, epoch=when[sorted_] // together, **{c: lane[sorted_] for c, lane in made[name].items()}
        )
        at += size
    return at


def _rows(table: Table) -> int:
    return len(next(iter(table.values())))


def _texts(words: Sequence[str], width: int) -> Lane:
    return np.array([word.ljust(width).encode() for word in words], f"S{width}")


def _part_names(random: np.random.Generator, parts: int) -> Lane:
    """Five words of eight letters, no two alike."""
    words = [f"colour{k:02}" for k in range(COLOURS - 1)]
    table = _texts([*words, "green"], 8)
    first = random.integers(0, COLOURS, parts)
    step = random.integers(1, COLOURS // 5, parts)
    chosen = (first[:, None] + step[:, None] * np.arange(5)) % COLOURS
    names: Lane = np.ascontiguousarray(table[chosen]).view("S40").reshape(-1)
    return names


def _supplier(part: Lane, which: Lane, suppliers: int) -> Lane:
    """The four suppliers of a part."""
    found: Lane = (part + which * (suppliers // 4)) % suppliers + 1
    return found


def _written(days: Lane) -> Lane:
    """yyyymmdd of days."""
    months = days.astype("datetime64[M]")
    years = days.astype("datetime64[Y]").astype(np.int64) + 1970
    written: Lane = years * 10_000 + (months.astype(np.int64) % 12 + 1) * 100 + (days - months).astype(np.int64) + 1
    return written
