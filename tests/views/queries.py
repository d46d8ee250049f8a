"""Random views over the shop: joins of every kind, filters, groups, subqueries, CTEs, set operations, tops. None can fail.

Always: the same `Random` gives the same SQL, and every output column has its own name. Called by the oracle.
"""

from __future__ import annotations

import itertools
from random import Random

from tests.views.shop import TABLES

LINKS = {
    ("orders", "customers"): "{0}.customer_id = {1}.id",
    ("order_lines", "orders"): "{0}.order_id = {1}.id",
    ("order_lines", "products"): "{1}.id = {0}.product_id",
    ("payments", "orders"): "{0}.order_id = {1}.id",
    ("visits", "customers"): "{0}.customer_id = {1}.id",
    ("customers", "customers"): "{0}.region = {1}.region",
    ("orders", "orders"): "{0}.status = {1}.status and {0}.discount = {1}.parts",
}
NUMBERS = ("integer", "bigint", "smallint", "numeric(12,2)", "numeric(10,2)", "numeric(14,4)")
UNFIT = ("json", "double precision")
CONSTANTS = {"region": "north", "status": "open", "page": "/", "method": "card", "sku": "s1", "name": "Ab"}

Column = tuple[str, str]
"""(how it is written, its type)."""


def query(chance: Random, depth: int = 1) -> str:
    """A random SELECT."""
    if depth and chance.random() < 0.15:
        # Of equal numbers with several scales Postgres keeps whichever it meets first: no UNION of those.
        words = [(f"{word}{every}", "text") for word in ("union", "intersect", "except") for every in ("", " all")]
        word, kind = chance.choice([*words, ("union all", "number")])
        return f"{one_column(chance, kind)} {word} {one_column(chance, kind)}"
    head, sources, columns, conditions = from_clause(chance, depth)
    conditions += [condition(chance, columns) for _ in range(chance.randint(0, 2))]
    numbers = [n for n, kind in columns if kind in NUMBERS]
    if numbers and chance.random() < 0.2:
        word = chance.choice(("in", "in", "not in"))
        conditions.append(f"{chance.choice(numbers)} {word} ({one_column(chance, 'number')})")
    if numbers and depth and chance.random() < 0.3:
        conditions.append(subquery(chance, chance.choice(numbers)))
    where = f" where {' and '.join(conditions)}" if conditions else ""
    if chance.random() < 0.5:
        items, group = grouped(chance, columns)
        return f"{head}select {items} from {sources}{where}{group}"
    some = chance.sample(columns, min(len(columns), chance.randint(1, 4)))
    distinct = "distinct " if chance.random() < 0.3 else ""
    # Of equal numbers with several scales DISTINCT keeps whichever it meets first: no expressions there.
    items = ", ".join(f"{c[0] if distinct else scalar(chance, c)} as c{i}" for i, c in enumerate(some))
    if not distinct and chance.random() < 0.25:
        items += f", {window(chance, columns)} as w0"
    if chance.random() < 0.15:
        # Ordered by every column, so that rows which the order cannot tell apart are the same.
        bare = ", ".join(f"{c[0]} as c{i}" for i, c in enumerate(some))
        order = ", ".join(f"{i + 1}{chance.choice(('', ' desc', ' nulls first'))}" for i in range(len(some)))
        cut = chance.choice(("limit 2", "limit 5 offset 1", "offset 3", "fetch first 3 rows with ties"))
        return f"{head}select {distinct}{bare} from {sources}{where} order by {order} {cut}"
    return f"{head}select {distinct}{items} from {sources}{where}"


def grouped(chance: Random, columns: list[Column]) -> tuple[str, str]:
    """A SELECT list of keys and aggregates, and the GROUP BY and HAVING that go with it."""
    keys = chance.sample(columns, min(len(columns), chance.randint(0, 2)))
    items = [f"{k[0]} as k{i}" for i, k in enumerate(keys)]
    numbers = [c for c in columns if c[1] in NUMBERS] or [("1", "integer")]
    for i in range(chance.randint(1, 3)):
        arg = chance.choice(numbers)[0]
        distinct = "distinct " if chance.random() < 0.2 else ""
        made = chance.choice(("count(*)", f"count({distinct}{arg})", f"sum({distinct}{arg})", f"avg({arg})",
                              f"min({arg})", f"max({arg})", f"bool_or({arg} > 2)"))  # fmt: skip
        where = f" filter (where {condition(chance, columns)})" if chance.random() < 0.3 else ""
        items.append(f"{made}{where} as a{i}")
    having = " having count(*) > 1" if keys and chance.random() < 0.3 else ""
    listed = ", ".join(k[0] for k in keys)
    by = f" group by {chance.choice(('{}', '{}', '{}', 'rollup ({})', 'cube ({})')).format(listed)}" if keys else ""
    return ", ".join(items), by + having


def window(chance: Random, columns: list[Column]) -> str:
    """A window function that does not depend on the order of equal rows."""
    names = [n for n, _ in columns]
    numbers = [n for n, kind in columns if kind in NUMBERS] or ["1"]
    part = f"partition by {chance.choice(names)}" if chance.random() < 0.7 else ""
    order = f"order by {chance.choice(names)}{chance.choice(('', ' desc', ' nulls first'))}"
    number = chance.choice(numbers)
    return chance.choice((
        f"rank() over ({part} {order})",
        f"dense_rank() over ({part} {order})",
        f"count({number}) over ({part} {order})",
        f"sum({number}) over ({part})",
        f"max({number}) over ({part})",
        f"count(*) over ({part} {order} groups between 1 preceding and current row)",
        f"min({chance.choice(names)}) over ({part} order by {number} range between current row and unbounded following)"
        if not any(kind in ("boolean",) for _, kind in columns) else f"cume_dist() over ({part} {order})",
    ))  # fmt: skip


def subquery(chance: Random, outer: str) -> str:
    """A condition by a subquery that reads the number `outer` of the query around it."""
    table = chance.choice([t for t in TABLES if t != "visits"])
    columns = [(f"q.{n}", s.removesuffix(" not null")) for n, s in TABLES[table][0].items() if s not in UNFIT]
    number = chance.choice([n for n, kind in columns if kind in NUMBERS])
    link = chance.choice((f"{number} = {outer}", f"{number} = {outer}", f"{number} < {outer}"))
    rows = f"from {table} q where {link} and {condition(chance, columns)}"
    one = chance.choice(("max", "min", "sum", "avg", "count"))
    return chance.choice((
        f"exists (select 1 {rows})",
        f"not exists (select 1 {rows})",
        f"(select count(*) {rows}) < 2",
        f"({outer} > 3 or exists (select 1 {rows}))",
        f"coalesce((select {one}({number}) {rows}), 0) <= coalesce({outer}, 1)",
        f"{outer} <= all (select {number} {rows})",
        f"{outer} > any (select {number} from {table} q)",
    ))  # fmt: skip


def from_clause(chance: Random, depth: int) -> tuple[str, str, list[Column], list[str]]:
    """WITH …, the FROM items, the columns in sight, and conditions that must stand in WHERE."""
    if depth and chance.random() < 0.3:
        inner = query(chance, 0)
        names = [(f"s.{n}", "unknown") for n in output_names(inner)]
        if chance.random() < 0.5:
            return f"with s as ({inner}) ", "s", names, []
        return "", f"({inner}) s", names, []
    tables = [chance.choice(list(TABLES))]
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        options = [b if a in tables else a for a, b in LINKS if a in tables or b in tables]
        tables.append(chance.choice(options))
    aliases = [f"t{i}" for i in range(len(tables))]
    joined, where = f"{tables[0]} t0", []
    comma = chance.random() < 0.3
    for i in range(1, len(tables)):
        on = link(chance, tables, aliases, i)
        if comma:
            joined += f", {tables[i]} t{i}"
            where.append(on)
        else:
            side = chance.choice(("", "", " left", " left", " right", " full"))
            if chance.random() < 0.2:
                on += f" and {among(chance, tables, i)}"
            joined += f"{side} join {tables[i]} t{i} on {on}"
    columns = [(f"{a}.{n}", s.removesuffix(" not null")) for a, t in zip(aliases, tables, strict=True)
               for n, s in TABLES[t][0].items() if s not in UNFIT]  # fmt: skip
    return "", joined, columns, where


def among(chance: Random, tables: list[str], at: int) -> str:
    """One more condition of the join with table `at`: on one side, or between the two."""
    sides = []
    for i in (chance.randrange(at), at):
        columns = [
            (f"t{i}.{n}", s.removesuffix(" not null")) for n, s in TABLES[tables[i]][0].items() if s not in UNFIT
        ]
        sides.append([c for c in columns if c[1] in NUMBERS] or columns)
    one, other = (chance.choice(side) for side in sides)
    if one[1] in NUMBERS and other[1] in NUMBERS and chance.random() < 0.5:
        return f"{one[0]} {chance.choice(('<', '<>', '>='))} {other[0]}"
    return condition(chance, [one, other])


def link(chance: Random, tables: list[str], aliases: list[str], at: int) -> str:
    """The condition that joins table `at` to one before it."""
    found = []
    for before in range(at):
        for (one, other), text in LINKS.items():
            if (tables[before], tables[at]) == (one, other):
                found.append(text.format(aliases[before], aliases[at]))
            elif (tables[at], tables[before]) == (one, other):
                found.append(text.format(aliases[at], aliases[before]))
    return chance.choice(found)


def condition(chance: Random, columns: list[Column]) -> str:
    """A truth value over the columns that cannot fail."""
    name, kind = chance.choice(columns)
    if kind in NUMBERS:
        return chance.choice((f"{name} > 2", f"{name} between 1 and 5.5", f"not ({name} < 3)", f"{name} in (1, 2, 5)",
                              f"({name} is null or {name} <> 2)", f"{name} is distinct from 2"))  # fmt: skip
    bare = name.split(".")[1]
    if bare in CONSTANTS:
        return chance.choice((f"{name} = '{CONSTANTS[bare]}'", f"{name} <> '{CONSTANTS[bare]}'", f"{name} like '%a%'",
                              f"coalesce({name}, 'x') < 'p'"))  # fmt: skip
    return f"{name} is not null"


def scalar(chance: Random, column: Column) -> str:
    """An expression of one column that cannot fail on the shop's values."""
    name, kind = column
    if kind in NUMBERS:
        return chance.choice((name, f"{name} + 1", f"coalesce({name}, 0)", f"-{name}", f"{name}::text",
                              f"case when {name} > 2 then 'big' else 'small' end"))  # fmt: skip
    if kind in ("text", "varchar(20)"):
        return chance.choice((name, f"upper({name})", f"{name} || '!'", f"length({name})", f"nullif({name}, 'open')"))
    return name


def one_column(chance: Random, kind: str) -> str:
    """A SELECT of one column, for unions."""
    wanted = ("text", "varchar(20)") if kind == "text" else NUMBERS
    while True:
        _, sources, columns, conditions = from_clause(chance, 0)
        fitting = [c for c in columns if c[1] in wanted]
        if fitting:
            where = f" where {' and '.join(conditions)}" if conditions else ""
            return f"select {chance.choice(fitting)[0]} as c0 from {sources}{where}"


def output_names(sql: str) -> list[str]:
    """The output names of a query made here."""
    words = sql.replace("distinct from", "differs").replace(",", " ").split()
    return [word for before, word in itertools.pairwise(words[: words.index("from")]) if before == "as"]
