"""Our side of six TPC-H queries, built by hand of the engine's operators; each a session that is fed a folder of tables.

Always: plans are those of the peer (tpch.rs), table for table and join for join, but that a table's own arrangement by its
primary key serves joins as it is. Order and limit are left to the reader. Called by `sessions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.engine.dataflow import Collection
from headrace.engine.dataflow.collection import COUNT_ROWS
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.core.resolve import resolve
from headrace.engine.schema import BIGINT, NUMERIC, TEXT, Column, DataType, Schema
from tests.bench.peers.feeding import Flow, Session
from tests.bench.peers.laps import Answer

SUM = DataType(NUMERIC.kind, scale=0)
TEXTS = ("name", "mktsegment")


def _schema(columns: str, key: str) -> Schema:
    return Schema.of([Column(c, TEXT if c in TEXTS else BIGINT) for c in columns.split()], key.split())


TABLES = {
    "lineitem": _schema(
        "orderkey linenumber partkey suppkey quantity extendedprice discount tax returnflag linestatus shipdate",
        "orderkey linenumber",
    ),
    "orders": _schema("orderkey custkey totalprice orderdate shippriority", "orderkey"),
    "customer": _schema("custkey name nationkey mktsegment", "custkey"),
    "supplier": _schema("suppkey nationkey", "suppkey"),
    "part": _schema("partkey name", "partkey"),
    "partsupp": _schema("partkey suppkey supplycost", "partkey suppkey"),
    "nation": _schema("nationkey name regionkey", "nationkey"),
    "region": _schema("regionkey name", "regionkey"),
}


def call(name: str, *args: Expr | int | str) -> Call:
    """A function of the catalogue."""
    exprs = tuple(Literal(a, BIGINT if isinstance(a, int) else TEXT) if isinstance(a, int | str) else a for a in args)
    found = resolve(name, [e.type for e in exprs])
    return Call(found.function, exprs, found.result)


@dataclass(frozen=True)
class Named:
    """A collection whose columns go by their names."""

    rows: Collection

    def __getitem__(self, name: str) -> ColumnRef:
        at = self.rows.schema.position(name)
        return ColumnRef(at, self.rows.schema.columns[at].type)

    def where(self, *conditions: Expr) -> Named:
        """The rows that meet all conditions."""
        return Named(self.rows.filter(conditions[0] if len(conditions) == 1 else call("and", *conditions)))

    def select(self, *names: str, **computed: Expr) -> Named:
        """Columns of these names, and computed ones."""
        exprs = {name: self[name] for name in names} | computed
        schema = Schema(tuple(Column(name, e.type) for name, e in exprs.items()))
        return Named(self.rows.project(list(exprs.values()), schema))

    def meet(self, other: Named, on: str, keep: str) -> Named:
        """Joined where columns of these names are equal; of both sides together the columns `keep`."""
        left, right = self.rows.schema.names, other.rows.schema.names
        both = [*left, *right]
        pairs = [(left.index(name), right.index(name)) for name in on.split()]
        held = sorted(both.index(name) for name in keep.split())
        return Named(self.rows.join(other.rows, [p[0] for p in pairs], [p[1] for p in pairs], None, held))

    def total(self, by: str, *sums: str, count: bool = False) -> Named:
        """The sums of some columns by group; with `count` how many rows."""
        aggregates = [Aggregate("sum", self[name], SUM) for name in sums]
        columns = [Column(name, self[name].type) for name in by.split()] + [Column(name, SUM) for name in sums]
        if count:
            aggregates.append(COUNT_ROWS)
            columns.append(Column("count", BIGINT))
        return Named(self.rows.reduce([self[n].index for n in by.split()], aggregates, Schema(tuple(columns))))


Tables = Callable[[str], Named]


def revenue(lines: Named) -> Call:
    """The discounted price, in hundredths of cents."""
    return call("*", lines["extendedprice"], call("-", 100, lines["discount"]))


def q1(table: Tables) -> Named:
    """Sums of the lines shipped up to a day, by flag and status."""
    lines = table("lineitem")
    kept = lines.where(call("<=", lines["shipdate"], 19980902))
    charge = call("*", revenue(lines), call("+", 100, lines["tax"]))
    names = ("returnflag", "linestatus", "quantity", "extendedprice", "discount")
    sums = ("quantity", "extendedprice", "revenue", "charge", "discount")
    priced = kept.select(*names, revenue=revenue(lines), charge=charge)
    return priced.total("returnflag linestatus", *sums, count=True)


def q3(table: Tables) -> Named:
    """Revenue of the orders of a market segment that were placed before a day and shipped after it."""
    lines, orders, customers = table("lineitem"), table("orders"), table("customer")
    segment = customers.where(call("=", customers["mktsegment"], "BUILDING".ljust(16))).select("custkey")
    early = orders.where(call("<", orders["orderdate"], 19950315))
    late = lines.where(call(">", lines["shipdate"], 19950315)).select("orderkey", revenue=revenue(lines))
    wanted = early.meet(segment, "custkey", "orderkey orderdate shippriority")
    found = wanted.meet(late, "orderkey", "orderkey orderdate shippriority revenue")
    return found.total("orderkey orderdate shippriority", "revenue")


def q5(table: Tables) -> Named:
    """Revenue of a year's orders within the nations of a region, by nation."""
    lines, orders, regions = table("lineitem"), table("orders"), table("region")
    asia = regions.where(call("=", regions["name"], "ASIA".ljust(16))).select("regionkey")
    nations = table("nation").meet(asia, "regionkey", "nationkey name")
    suppliers = table("supplier").meet(nations, "nationkey", "suppkey nationkey name")
    year = orders.where(call(">=", orders["orderdate"], 19940101), call("<", orders["orderdate"], 19950101))
    placed = year.select("orderkey", "custkey").meet(table("customer"), "custkey", "orderkey nationkey")
    sold = lines.select("orderkey", "suppkey", revenue=revenue(lines))
    home = sold.meet(placed, "orderkey", "suppkey revenue nationkey")
    return home.meet(suppliers, "suppkey nationkey", "revenue name").total("name", "revenue")


def q6(table: Tables) -> Named:
    """Revenue of a year's small lines with a middling discount, as one group."""
    lines = table("lineitem")
    kept = lines.where(
        call(">=", lines["shipdate"], 19940101), call("<", lines["shipdate"], 19950101),
        call(">=", lines["discount"], 5), call("<=", lines["discount"], 7), call("<", lines["quantity"], 24),
    )  # fmt: skip
    saved = call("*", lines["extendedprice"], lines["discount"])
    return kept.select(one=Literal(0, BIGINT), saved=saved).total("one", "saved")


def q9(table: Tables) -> Named:
    """Profit on the parts of a colour, by nation and year."""
    lines, parts = table("lineitem"), table("part")
    green = parts.where(call("like", parts["name"], "%green%")).select("partkey")
    sold = lines.select("orderkey", "partkey", "suppkey", "quantity", revenue=revenue(lines))
    kept = sold.meet(green, "partkey", "orderkey partkey suppkey quantity revenue")
    costed = kept.meet(table("partsupp"), "partkey suppkey", "orderkey suppkey quantity revenue supplycost")
    cost = call("*", call("*", costed["supplycost"], costed["quantity"]), 100)
    earned = costed.select("orderkey", "suppkey", profit=call("-", costed["revenue"], cost))
    dated = earned.meet(table("orders"), "orderkey", "suppkey profit orderdate")
    nations = table("supplier").meet(table("nation"), "nationkey", "suppkey name")
    found = dated.meet(nations, "suppkey", "profit orderdate name")
    yearly = found.select("name", "profit", year=call("/", found["orderdate"], 10_000))
    return yearly.total("name year", "profit")


def q18(table: Tables) -> Named:
    """Customers of large orders."""
    large = table("lineitem").total("orderkey", "quantity")
    kept = large.where(call(">", large["quantity"], Literal("300", SUM)))
    ordered = kept.meet(table("orders"), "orderkey", "orderkey quantity custkey totalprice orderdate")
    named = ordered.meet(table("customer"), "custkey", "orderkey quantity custkey totalprice orderdate name")
    return named.select("name", "custkey", "orderkey", "orderdate", "totalprice", "quantity")


class Query(Flow):
    """One query; `run FOLDER EPOCHS` feeds the tables that it reads, each from the columns of its name there.

    `keeps`: tables are such, with a primary key and an arrangement by it; or else what comes is handed on as it is.
    """

    def __init__(self, query: Callable[[Tables], Named], *, keeps: bool = True) -> None:
        super().__init__()
        self._keeps = keeps
        self._tables: dict[str, None] = {}
        self.outputs = [query(self._table).rows.output("out")]

    def _table(self, name: str) -> Named:
        self._tables[name] = None
        if self._keeps:
            return Named(self.flow.table(name, TABLES[name]))
        found = self.given.get(name)
        schema = Schema(TABLES[name].columns)
        return Named(Collection(self.flow, found, schema) if found else self.give(name, schema))

    def run(self, prefix: str, epochs: int) -> Answer:
        """Rows of all tables."""
        return self.feed([([name], TABLES[name], f"{prefix}/{name}") for name in self._tables], epochs)


QUERIES = (q1, q3, q5, q6, q9, q18)

LOOSE = "{}-loose"
"""The session of a query over rows that no table keeps."""

SESSIONS: dict[str, Callable[[], Session]] = {
    **{q.__name__: lambda q=q: Query(q) for q in QUERIES},  # type: ignore[misc]
    **{LOOSE.format(q.__name__): lambda q=q: Query(q, keeps=False) for q in QUERIES},  # type: ignore[misc]
}
