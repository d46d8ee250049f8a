"""FROM clauses drawn at random over tables whose columns share names: joins of every kind in any nesting, NATURAL, USING, commas,
LATERAL and functions that read what stands before them, aliases with and without names of columns.

Always: what is drawn is SQL by Postgres's grammar; whether its names mean one column each is left to Postgres.
Called by `test_items`.
"""

from __future__ import annotations

import random

TABLES = """
create table a (id int primary key, x int, y text, k int);
create table b (id int, x int, z text, arr int[]);
create table c (k int primary key, x int, id bigint, w numeric);
create table d (y text, id int, w numeric, q smallint);
insert into a values (1, 1, 'u', 2), (2, null, 'v', 3), (3, 2, null, 1), (4, 1, 'u', null);
insert into b values (1, 1, 'p', '{1,2}'), (1, 2, 'q', '{3}'), (null, 1, null, null), (3, 2, 'p', '{}'), (3, 2, 'p', '{2,5}');
insert into c values (1, 1, 1, 1.0), (2, null, 3, 1.00), (3, 2, null, 2.5), (5, 1, 4, null);
insert into d values ('u', 1, 1, 1), ('v', 3, 2.5, 2), (null, null, null, null), ('u', 1, 1.0, 1);
"""
CHANGE = "update a set k = 1 + k, x = 3 where id = 4; delete from b where x = 2 and id = 1; insert into c values ({}, 3, 1, 7);"
COLUMNS = {"a": "id x y k", "b": "id x z arr", "c": "k x id w", "d": "y id w q"}
NUMBERS = ("id", "x", "k", "w", "q")
SIDES = ("", "", "inner ", "left ", "left outer ", "right ", "full ")
Columns = list[tuple[str, str]]
"""What is seen: (the table's name, or none for what USING has merged; the column's)."""


def spelled(column: tuple[str, str]) -> str:
    return ".".join(part for part in column if part)


class Drawer:
    """Draws SELECTs from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.aliases = 0

    def alias(self) -> str:
        self.aliases += 1
        return f"t{self.aliases}"

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def renamed(self, alias: str, names: list[str]) -> tuple[str, Columns]:
        """An alias that gives some of the columns other names."""
        given = [
            self.chance.choice(("id", "x", "k", "y", "m")) + (str(i) if self.often(0.5) else "")
            for i in range(self.chance.randint(1, len(names)))
        ]
        return f"as {alias}({', '.join(given)})", [(alias, n) for n in (*given, *names[len(given) :])]

    def item(self, depth: int, before: Columns) -> tuple[str, Columns]:
        """One item of FROM, which may read columns `before` it."""
        kind = self.chance.random()
        if depth and kind < 0.3:
            return self.nested(depth, named=kind < 0.07, selected=kind > 0.18)
        alias = self.alias()
        numbers = [c for c in before if c[1] in NUMBERS]
        if kind < 0.42 and numbers:
            read, name = spelled(self.chance.choice(numbers)), self.chance.choice(("id", "x", "k", "v"))
            text, names = self.chance.choice((
                (f"lateral (select {read} + 1 as {name}) {alias}", [name]),
                (f"lateral (select id as {name}, w from c where c.k <= {read}) {alias}", [name, "w"]),
                (f"generate_series(1, least({read}, 3)::int) {alias}({name})", [name]),
            ))  # fmt: skip
            return text, [(alias, n) for n in names]
        if kind < 0.47:
            return f"(values (1, 'u'), (3, null)) {alias}(id, y)", [(alias, "id"), (alias, "y")]
        table = self.chance.choice(list(COLUMNS))
        names = COLUMNS[table].split()
        if self.often(0.1):
            text, columns = self.renamed(alias, names)
            return f"{table} {text}", columns
        return f"{table} {alias}", [(alias, n) for n in names]

    def nested(self, depth: int, *, named: bool, selected: bool) -> tuple[str, Columns]:
        """A join in parentheses, under a name or without one, or a SELECT of some of its columns."""
        text, columns = self.joins(depth - 1, [], nested=not selected)
        if not selected and not named:
            return f"({text})", columns
        alias = self.alias()
        if selected:
            first = {name: (table, name) for table, name in reversed(columns)}
            chosen = self.chance.sample(list(first), min(len(first), self.chance.randint(1, 3)))
            listed = ", ".join(spelled(first[name]) for name in chosen)
            return f"(select {listed} from {text}) {alias}", [(alias, n) for n in chosen]
        names = [n for _, n in columns]
        if self.often(0.3):
            more, columns = self.renamed(alias, names)
            return f"({text}) {more}", columns
        return f"({text}) {alias}", [(alias, n) for n in names]

    def joins(self, depth: int, before: Columns, *, nested: bool) -> tuple[str, Columns]:
        """Items joined in any way; `nested`: in parentheses, where there is one join at least and no comma."""
        text, columns = self.item(depth, before)
        begin = 0
        for _ in range(self.chance.choice((1, 1, 2, 2, 3) if nested else (0, 1, 1, 2, 2, 3))):
            if not nested and self.often(0.2):
                more, found = self.item(depth, before + columns)
                begin, text, columns = len(columns), f"{text}, {more}", columns + found
                continue
            side = self.chance.choice(SIDES)
            more, found = self.item(depth, [] if side in ("right ", "full ") else before + columns)
            own = columns[begin:]
            theirs = [n for _, n in found]
            common = list(dict.fromkeys(n for _, n in own if n in theirs))
            kind = self.chance.choice(("natural", "using", "cross", "on"))
            if kind == "cross" or (kind == "using" and not common):
                text, columns = f"{text} cross join {more}", columns + found
                continue
            if kind == "on":
                text, columns = f"{text} {side}join {more} on {self.condition(own, found)}", columns + found
                continue
            if kind == "using":
                common = self.chance.sample(common, self.chance.randint(1, min(2, len(common))))
                text = f"{text} {side}join {more} using ({', '.join(common)})"
            else:
                text = f"{text} natural {side}join {more}"
            rest = [c for c in own + found if c[1] not in common]
            columns = [*columns[:begin], *(("", n) for n in common), *rest]
        return text, columns

    def condition(self, left: Columns, right: Columns) -> str:
        ours, theirs = ([spelled(c) for c in side if c[1] in NUMBERS] for side in (left, right))
        return f"{self.chance.choice(ours)} = {self.chance.choice(theirs)}" if ours and theirs else "true"

    def select(self) -> str:
        """One SELECT of all, of some tables' columns or of some columns."""
        self.aliases = 0
        text, columns = self.joins(2, [], nested=False)
        tables = [table for table, _ in columns if table]
        kind = self.chance.choice(("star", "tables", "columns"))
        if kind == "star" or not tables:
            listed = "*"
        elif kind == "tables":
            listed = ", ".join(f"{table}.*" for table in self.chance.sample(tables, min(2, len(tables))))
        else:
            chosen = (self.chance.choice(columns) for _ in range(self.chance.randint(1, 4)))
            listed = ", ".join(f"{spelled(c) if self.often(0.7) else c[1]} as c{i}" for i, c in enumerate(chosen))
        where = f" where {spelled(self.chance.choice(columns))} is not null" if self.often(0.2) else ""
        return f"select {listed} from {text}{where};"


def script(seed: int, queries: int) -> str:
    """The tables, and queries with changes between them."""
    drawer = Drawer(seed)
    lines = [TABLES]
    for i in range(queries):
        lines.append(drawer.select())
        if drawer.often(0.02):
            lines.append(CHANGE.format(100 + i))
    return "\n".join(lines)
