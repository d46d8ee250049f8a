"""The rows of TPC-H, and our six queries over them against loops over dictionaries; the peer's against ours, if built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.peers.contest import OURS, contest
from tests.bench.peers.crate import built
from tests.bench.peers.tpch import LOOSE, SESSIONS, TABLES, Query
from tests.bench.tpch import FIRST, READS, Table, tables, write

Rows = list[dict[str, Any]]
Found = Counter[tuple[object, ...]]
SCALE = 0.002


def few() -> dict[str, Table]:
    """Few rows, of which each line is of twice as much, so that some orders are large."""
    found = tables(SCALE)
    return found | {"lineitem": {**found["lineitem"], "quantity": found["lineitem"]["quantity"] * 2}}


@pytest.fixture(scope="module")
def made() -> Mapping[str, Rows]:
    """The tables as dictionaries, texts without their blanks."""
    found = {}
    for name, table in few().items():
        lanes = [[v.decode().rstrip() if isinstance(v, bytes) else v for v in lane.tolist()] for lane in table.values()]
        found[name] = [dict(zip(table, values, strict=True)) for values in zip(*lanes, strict=True)]
    return found


def revenue(line: dict[str, Any]) -> int:
    found: int = line["extendedprice"] * (100 - line["discount"])
    return found


def by(rows: Rows, *names: str) -> dict[tuple[int, ...], dict[str, Any]]:
    return {tuple(row[name] for name in names): row for row in rows}


def summed(groups: dict[tuple[object, ...], list[int]]) -> Found:
    return Counter({(*key, *sums): 1 for key, sums in groups.items()})


def add(groups: dict[tuple[object, ...], list[int]], key: tuple[object, ...], *values: int) -> None:
    sums = groups.setdefault(key, [0] * len(values))
    groups[key] = [a + b for a, b in zip(sums, values, strict=True)]


def q1(t: Mapping[str, Rows]) -> Found:
    groups: dict[tuple[object, ...], list[int]] = {}
    for x in t["lineitem"]:
        if x["shipdate"] <= 19980902:
            charge = revenue(x) * (100 + x["tax"])
            sums = (x["quantity"], x["extendedprice"], revenue(x), charge, x["discount"], 1)
            add(groups, (x["returnflag"], x["linestatus"]), *sums)
    return summed(groups)


def q3(t: Mapping[str, Rows]) -> Found:
    customers, orders = by(t["customer"], "custkey"), by(t["orders"], "orderkey")
    groups: dict[tuple[object, ...], list[int]] = {}
    for x in t["lineitem"]:
        o = orders[x["orderkey"],]
        segment = customers[o["custkey"],]["mktsegment"]
        if x["shipdate"] > 19950315 > o["orderdate"] and segment == "BUILDING":
            add(groups, (o["orderkey"], o["orderdate"], o["shippriority"]), revenue(x))
    return summed(groups)


def q5(t: Mapping[str, Rows]) -> Found:
    customers, orders, suppliers = (
        by(t["customer"], "custkey"),
        by(t["orders"], "orderkey"),
        by(t["supplier"], "suppkey"),
    )
    nations = by(t["nation"], "nationkey")
    groups: dict[tuple[object, ...], list[int]] = {}
    for x in t["lineitem"]:
        o = orders[x["orderkey"],]
        home, other = customers[o["custkey"],]["nationkey"], suppliers[x["suppkey"],]["nationkey"]
        if o["orderdate"] // 10_000 == 1994 and home == other and nations[home,]["regionkey"] == 2:
            add(groups, (nations[home,]["name"],), revenue(x))
    return summed(groups)


def q6(t: Mapping[str, Rows]) -> Found:
    wanted = [
        x for x in t["lineitem"] if x["shipdate"] // 10_000 == 1994 and 5 <= x["discount"] <= 7 and x["quantity"] < 24
    ]
    return Counter({(0, sum(x["extendedprice"] * x["discount"] for x in wanted)): 1})


def q9(t: Mapping[str, Rows]) -> Found:
    orders, suppliers, parts = by(t["orders"], "orderkey"), by(t["supplier"], "suppkey"), by(t["part"], "partkey")
    costs, nations = by(t["partsupp"], "partkey", "suppkey"), by(t["nation"], "nationkey")
    groups: dict[tuple[object, ...], list[int]] = {}
    for x in t["lineitem"]:
        if "green" in parts[x["partkey"],]["name"]:
            nation = nations[suppliers[x["suppkey"],]["nationkey"],]["name"]
            cost = costs[x["partkey"], x["suppkey"]]["supplycost"]
            profit = revenue(x) - 100 * cost * x["quantity"]
            add(groups, (nation, orders[x["orderkey"],]["orderdate"] // 10_000), profit)
    return summed(groups)


def q18(t: Mapping[str, Rows]) -> Found:
    customers, orders = by(t["customer"], "custkey"), by(t["orders"], "orderkey")
    quantities: Counter[int] = Counter()
    for x in t["lineitem"]:
        quantities[x["orderkey"]] += x["quantity"]
    found: Found = Counter()
    for key, quantity in quantities.items():
        if quantity > 300:
            o = orders[key,]
            name = customers[o["custkey"],]["name"]
            found[name, o["custkey"], key, o["orderdate"], o["totalprice"], quantity] = 1
    return found


@pytest.mark.parametrize("naive", [q1, q3, q5, q6, q9, q18])
def test_queries_find_what_loops_over_dictionaries_find(
    made: Mapping[str, Rows], tmp_path: Path, naive: Callable[[Mapping[str, Rows]], Found]
) -> None:
    query = naive.__name__
    count = write(tmp_path, few(), query)
    sums = set()
    for epochs in (997, count):
        session = SESSIONS[query]()
        assert isinstance(session, Query)
        answer = session.run(str(tmp_path), epochs)
        assert answer.rows == count
        sums.add(answer.checksum)
        rows, errors = session.outputs[0].snapshot(session.flow.frontier - 1)
        values = [[v.rstrip() if isinstance(v, str) else v for v in c.to_pylist()] for c in rows.rows.columns]
        assert Counter(zip(*values, strict=True)) == naive(made)
        assert not len(errors)
    loose = SESSIONS[LOOSE.format(query)]().commands()["run"](str(tmp_path), 997)
    assert loose.rows == count
    assert sums == {loose.checksum}, "rows that no table keeps make the same answer"
    assert naive(made)


def test_the_peer_sends_the_same_for_every_query(tmp_path: Path) -> None:
    binary = built()
    if binary is None:
        pytest.skip("the peer is not built: make bench-peers")
    for query in READS:
        write(tmp_path / query, few(), query)
        with contest(query, {"peer": query}, binary) as sides:
            assert len(sides.ask("run", tmp_path / query, 500)) == 2


def test_dbsp_sends_the_same_for_every_query_with_many_rows_an_epoch(tmp_path: Path) -> None:
    binary = built("dbsp-peer")
    if binary is None:
        pytest.skip("dbsp is not built: make bench-peers")
    for query in READS:
        count = write(tmp_path / query, few(), query, 500)
        for session in (query, LOOSE.format(query)):
            with contest(session, {}, None, {"dbsp": [str(binary), session]}) as sides:
                found = sides.ask("run", tmp_path / query, 1)
            assert {told.rows for told in found.values()} == {count}
            assert len(found["dbsp"].cpu) == len(found[OURS].cpu) == -(-count // 500)


def test_rows_are_the_same_again_and_keys_are_keys(tmp_path: Path) -> None:
    first, again = tables(SCALE), tables(SCALE)
    for name, table in first.items():
        assert all((lane == again[name][column]).all() for column, lane in table.items())
        schema = TABLES[name]
        assert schema.names == tuple(table)
        keys = list(zip(*(table[schema.names[k]].tolist() for k in schema.key or ()), strict=True))
        assert len(set(keys)) == len(keys)
    count = write(tmp_path, first, "q5")
    epochs = {name: np.fromfile(tmp_path / f"{name}.epoch", "<i8").tolist() for name in READS["q5"]}
    assert sorted(chain.from_iterable(epochs.values())) == list(range(count))
    assert max(max(epochs[name]) for name in FIRST) == 29
    assert all(lane == sorted(lane) for lane in epochs.values())
