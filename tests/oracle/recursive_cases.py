"""Recursive queries drawn at random over the tests' shop: its orders, payments and order lines are edges between small numbers.

Always: the same `Random` gives the same SQL; every recursion ends (by a depth, by a path, or because UNION meets only rows that
it has), and rows are cut by total orders, so that Postgres has one answer. Called by the oracle's run and its test.
"""

from __future__ import annotations

from random import Random

EDGES = (
    "(select customer_id as a, id as b from orders)",
    "(select order_id as a, id::bigint as b from payments)",
    "(select order_id as a, line_no::bigint as b from order_lines)",
    "(select id as a, customer_id as b from orders where status <> 'void')",
)
STARTS = (
    "select id{more} from customers",
    "select id{more} from customers where vip",
    "select distinct customer_id{more} from orders",
    "select customer_id{more} from orders where total > 5",
    "select x::bigint{more} from (values (1), (2), (null)) v(x)",
    "select 1::bigint{more}",
    "select order_id{more} from payments where method = 'card' union select product_id{more} from order_lines",
)
COLUMNS = {
    "": ("", "", ""),
    "d": (", 0 as d", ", t.d + 1", " and t.d < {most}"),
    "path": (
        ", 0 as d, array[-1]::bigint[] as path",
        ", t.d + 1, t.path || {b}",
        " and {b} <> all (t.path) and t.d < 4",
    ),
    "cost": (", 0 as d, 1.0 as cost", ", t.d + 1, t.cost * 1.50 + coalesce({b}, 0)", " and t.d < {most}"),
    "label": (", 0 as d, 'r' as label", ", t.d + 1, t.label || '/' || coalesce({b}::text, '?')", " and t.d < {most}"),
}
"""Beside the node: what each start gives, what each round makes of it, and what ends the recursion."""


class Recursive:
    """One statement being drawn. `used`: the constructs that it has."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.used: set[str] = set()
        self._names = 0
        self.sql = self.statement()

    def often(self, share: float) -> bool:
        """True in that share of draws."""
        return self.chance.random() < share

    def say(self, construct: str, text: str) -> str:
        """`text`, which has this construct."""
        self.used.add(construct)
        return text

    def statement(self) -> str:
        """A SELECT with a recursion in its WITH, in FROM, or in a subquery."""
        name = self.chance.choice(("t", "reached", "t1"))
        kind = self.chance.random()
        if self.often(0.1):
            return self.cycle(name)
        if kind < 0.12:
            item, columns = self.item(name, "select c.id{more}")
            inner = f"with recursive {item} select count(*) as n, max({columns[0]}) as m from {name}"
            return self.say("correlated", f"select c.id as id, s.n, s.m from customers c, lateral ({inner}) s")
        item, columns = self.item(name)
        if kind < 0.22:
            text = f"with recursive {item} select {columns[0]} from {name}"
            word = self.chance.choice(("in", "not in"))
            return self.say(
                "in a subquery", f"select o.id as id, o.status from orders o where o.customer_id {word} ({text})"
            )
        items = [item]
        if self.often(0.15):
            items.insert(
                0, self.say("an item that nothing reads", "idle(x) as (select 1 union all select x + 1 from idle)")
            )
        if self.often(0.2):
            items.append("plain as materialized (select id, region from customers where vip)")
            return self.say(
                "beside a plain item",
                self.given(items, f"select t.*, p.region from {name} t join plain p on p.id = t.{columns[0]}"),
            )
        if self.often(0.15):
            chosen = self.chance.choice(columns)
            items.insert(0, f"later as (select count(*) as n, count({chosen}) as m from {name})")
            return self.say("a forward reference", self.given(items, "select l.n, l.m from later l"))
        return self.given(items, self.outer(name, columns))

    def cycle(self, name: str) -> str:
        """A recursion along edges, any of which may close a cycle."""
        word = self.chance.choice(("union", "union all"))
        begin = self.chance.choice(STARTS[:5]).replace("{more}", ", 'r' as label")
        edge = self.chance.choice(EDGES)
        value = self.chance.choice(("t.label", "t.label || 'x'", "'s'"))
        by, mark = (
            self.chance.choice(("n", "n, label", "label, n")),
            self.chance.choice(("", " to 1 default 0", " to 'Y' default 'N'")),
        )
        body = f"{begin} {word} select e.b, {value} from {name} t join {edge} e on e.a = t.n where length(t.label) < 4"
        shown = self.chance.choice(
            ("n, label, closed, way::text as way", "n, closed, cardinality(way) as k", "count(*) as k")
        )
        search, rest = "", ""
        if self.often(0.5):
            how = self.say("SEARCH", "search") + self.chance.choice((" depth", " breadth"))
            search = f" {how} first by {self.chance.choice(('n', 'n, label', 'label, n'))} set place"
            shown, rest = self.chance.choice((
                ("n, closed, place::text as place", ""),
                ("n, rank() over (order by place) as k", ""),
                ("n, label, rank() over (partition by closed order by place desc, way) as k", ""),
                ("place::text as place, count(*) as k", " group by place"),
            ))  # fmt: skip
        clauses = f"{search} cycle {by} set closed{mark} using way"
        return self.say(
            "CYCLE", f"with recursive {name}(n, label) as ({body}){clauses} select {shown} from {name}{rest}"
        )

    def given(self, items: list[str], query: str) -> str:
        """The query under its WITH."""
        return f"with recursive {', '.join(items)} {query}"

    def outer(self, name: str, columns: list[str]) -> str:
        """What is asked of the recursion."""
        node = columns[0]
        return self.chance.choice((
            f"select * from {name}",
            f"select {', '.join(columns)} from {name}",
            f"select {node} as k, count(*) as n from {name} group by {node}",
            f"select t.{node} as k, c.region from {name} t left join customers c on c.id = t.{node}",
            f"select distinct {columns[-1]} as v from {name}",
            f"select a.{node} as x, b.{node} as y from {name} a join {name} b on a.{node} = b.{node} + 1",
            f"select max({node}) as m from {name} where {node} > 1",
            f"select {node} as k from {name} order by {', '.join(map(str, range(1, 2)))} limit 3",
        ))  # fmt: skip

    def item(self, name: str, start: str = "") -> tuple[str, list[str]]:
        """The recursive item and the names of its columns."""
        shape = self.chance.choice(list(COLUMNS))
        every = self.often(0.5) and shape != ""
        more, made, ends = COLUMNS[shape]
        columns = ["n", *(w for w in ("d", "path", "cost", "label") if f" as {w}" in more)]
        given = list(columns)
        if self.often(0.3):
            given[0] = self.say("a column list", "k")
        begin = (start or self.chance.choice(STARTS)).replace("{more}", more)
        step = self.step(name, given[0], made, ends.replace("{most}", self.chance.choice("234")), columns)
        word = "union all" if every else "union"
        self.used.add(word)
        hint = self.chance.choice(("", "", "", "materialized ", "not materialized "))
        body = f"{begin} {word} {step}"
        if self.often(0.08):
            body = self.say("a WITH of its own", f"with own as (select id from customers) {begin} {word} {step}")
        return f"{name}({', '.join(given)}) as {hint}({body})", given

    def step(self, name: str, node: str, made: str, ends: str, columns: list[str]) -> str:
        """The recursive term."""
        edge = self.chance.choice(EDGES)
        plain = self.plain(name, node, made, ends, edge)
        if self.often(0.5):
            return plain
        read = f"select e.b{made} from {name} t join {edge} e on e.a = t.{node} where true{ends}".replace("{b}", "e.b")
        every = f"({plain}) s({', '.join(columns)})"
        ways = self.cut(read, every, columns) | self.nested(name, node, edge, columns)
        if columns == ["n", "d"]:
            ways |= self.aggregated(name, node, read)
        found = self.chance.choice(list(ways))
        return self.say(found, ways[found])

    def cut(self, read: str, every: str, columns: list[str]) -> dict[str, str]:
        """Terms that keep some of what a plain one gives, by more than a row."""
        named, wide = ", ".join(columns), ", ".join(str(i + 1) for i in range(len(columns)))
        order = ", ".join(f"s.{c}" for c in columns)
        values = {"n": "id", "d": "1", "path": "array[-1, id]", "cost": "2.5", "label": "'r/1'"}
        return {
            "DISTINCT": read.replace("select ", "select distinct ", 1),
            "DISTINCT ON": f"(select distinct on (s.n) s.* from {every} order by {order})",
            "LIMIT": f"({read} order by {wide} limit {self.chance.choice('123')})",
            "OFFSET": f"({read} order by {wide} offset 1)",
            "a window function": f"select {named} from (select s.*, row_number() over (partition by s.n order by {order}) as"
            f" place from {every}) w where place <= 2",
            "GROUP BY": f"select {named} from {every} group by {named}",
            "EXCEPT": f"({read} except select {', '.join(values[c] for c in columns)} from customers)",
        }

    def nested(self, name: str, node: str, edge: str, columns: list[str]) -> dict[str, str]:
        """Terms with a WITH of their own."""
        bound = "x.d < 3" if "d" in columns else f"x.{node} < 5"
        grown = ", ".join([f"x.{node}", *(f"x.{c}" if c != "d" else "x.d + 1" for c in columns[1:])])
        return {
            "a WITH read twice": f"(with x as (select * from {name}) select {grown} from x join x y on x.{node} = y.{node}"
            f" where {bound} and x.{node} is not null)",
            "a recursion within": f"select {grown} from {name} x join (with recursive z(v) as (select 1::bigint union select"
            f" e.b from z join {edge} e on e.a = z.v) select v from z) i on i.v = x.{node} where {bound}",
            "a recursion over the recursion": f"(with recursive z as (select x.* from {name} x where {bound} union select"
            f" {grown} from z x where {bound}) select {grown} from z x where {bound})",
        }

    def aggregated(self, name: str, node: str, read: str) -> dict[str, str]:
        """Terms of a node and a depth that aggregate what holds the recursion, or ask whether other rows have it."""
        least = self.chance.choice(("min", "max"))
        return {
            "INTERSECT": f"({read}) intersect select x.id, g from customers x, generate_series(0, 3) g",
            "an aggregate": f"select s.m, s.d + 1 from (select {least}(x.{node}) as m, max(x.d) as d from (select * from"
            f" {name}) x) s where s.d < 3",
            "an aggregate of nothing": f"select s.c, s.d + 1 from (select count(*) as c, coalesce(max(x.d), 0) as d from (select"
            f" * from {name} where {node} > 2 or d > 0) x) s where s.d < 3",
            "an aggregate by groups": f"select s.m, s.d + 1 from (select {least}(x.{node}) as m, x.d from (select * from"
            f" {name}) x group by x.d) s where s.d < 4",
        }

    def plain(self, name: str, node: str, made: str, ends: str, edge: str) -> str:
        """A term that gives for each row by itself."""
        joined = f"{name} t join {edge} e on e.a = t.{node}"
        ways: dict[str, tuple[str, str, str]] = {
            "JOIN": ("e.b", joined, "true"),
            "a comma": ("e.b", f"{edge} e, {name} t", f"e.a = t.{node} and e.b is distinct from t.{node}"),
            "LEFT JOIN": ("e.b", f"{name} t left join {edge} e on e.a = t.{node}", f"t.{node} is not null"),
            "RIGHT JOIN": ("e.b", f"{edge} e right join {name} t on e.a = t.{node}", f"t.{node} is not null"),
            "a function": (f"(t.{node} % 7 + x)", f"{name} t, generate_series(1, 2) x", f"t.{node} < 5"),
            "LATERAL": ("e.b", f"{name} t cross join lateral (select y.b from {edge} y where y.a = t.{node}) e", "true"),
            "LATERAL by any condition": ("e.b", f"{name} t, lateral (select y.b from {edge} y where y.a < t.{node} order by"
                                         " y.b limit 2) e", "true"),
            "LATERAL of a function": ("x", f"{name} t, generate_series(t.{node} + 1, least(t.{node} + 2, 7)) x",
                                      f"t.{node} < 6"),
            "a subquery in FROM": ("e.b", f"(select * from {name} where {node} > 1) t join {edge} e on e.a = t.{node}", "true"),
            "EXISTS": ("e.b", joined, "exists (select 1 from products p where p.id = e.b)"),
            "NOT EXISTS": ("e.b", joined, "not exists (select 1 from visits v where v.customer_id = e.b)"),
            "a scalar subquery": (f"(select max(y.id) from customers y where y.id > t.{node})", f"{name} t", f"t.{node} < 6"),
            "a WITH within": ("e.b", f"x t join {edge} e on e.a = t.{node}", "true"),
        }  # fmt: skip
        found = self.chance.choice(list(ways))
        value, tables, where = ways[found]
        fails = self.say("failing", f" and 12 / {value} > -99") if self.often(0.04) else ""
        term = f"select {value}{made} from {tables} where {where}{ends}{fails}".replace("{b}", value)
        return self.say(found, f"(with x as (select * from {name}) {term})" if found == "a WITH within" else term)


def queries_of(seed: int, count: int) -> list[str]:
    """The queries of a batch."""
    return [Recursive(Random(f"recursive/{seed}/{k}")).sql for k in range(count)]
