"""SELECTs drawn from the whole grammar, by type and scope, over the tests' shop: the drawer knows nothing of what is supported.

Always: the same `Random` gives the same SQL; what Postgres answers does not hang on which of equal rows it meets first
(orders are total where rows are cut, aggregates that depend on order have one). Called by the oracle's run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.oracle.families import BOOLEAN, DATE, FAILING, LITERALS, NUMBER, STAMP, TEXT, family_of
from tests.views.shop import TABLES

Column = tuple[str, str]
"""(how it is written, its type's family)."""


@dataclass(frozen=True)
class Scope:
    """What may be named: `columns` of the query itself, `outer` those around it."""

    columns: tuple[Column, ...]
    outer: tuple[Column, ...] = ()

    def of(self, family: str) -> list[str]:
        """Columns of a family; those around come in rarely."""
        mine = [n for n, f in self.columns if f == family]
        return [*mine, *mine, *(n for n, f in self.outer if f == family)]


class Drawn:
    """One statement being drawn. `used`: the constructs that it has."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.used: set[str] = set()
        self._names = 0
        self.sql, columns = self.query(2)
        if self.often(0.1):
            self.sql = self.failing(self.sql, columns)

    def name(self, letter: str = "t") -> str:
        """A name of its own."""
        self._names += 1
        return f"{letter}{self._names}"

    def say(self, construct: str, text: str) -> str:
        """`text`, which has this construct."""
        self.used.add(construct)
        return text

    def often(self, share: float) -> bool:
        """True in that share of draws."""
        return self.chance.random() < share

    # whole queries

    def query(self, depth: int, outer: tuple[Column, ...] = ()) -> tuple[str, tuple[Column, ...]]:
        """A statement with everything around its SELECT, and its columns."""
        if depth and self.often(0.12):
            return self.with_tables(depth, outer)
        if depth and self.often(0.12):
            return self.set_operation(depth, outer)
        return self.select(depth, outer)

    def failing(self, sql: str, columns: Sequence[Column]) -> str:
        """The query with a value beside its columns that fails for some rows. OFFSET 0: across it Postgres computes no
        constants beforehand and moves no condition, so that it fails for the rows that there are."""
        column, family = self.chance.choice(columns)
        value = self.chance.choice(FAILING[family]).replace("{}", f"q.{column}")
        return self.say("failing", f"select {value} as f, q.* from (select * from ({sql}) r offset 0) q")

    def with_tables(self, depth: int, outer: tuple[Column, ...]) -> tuple[str, tuple[Column, ...]]:
        """WITH."""
        name = self.name("w")
        inner, columns = self.select(depth - 1, ())
        made = tuple((f"{name}.{c}", f) for c, f in columns)
        body, found = self.select(depth - 1, outer, ((name, made),))
        return self.say("WITH", f"with {name} as ({inner}) {body}"), found

    def set_operation(self, depth: int, outer: tuple[Column, ...]) -> tuple[str, tuple[Column, ...]]:
        """UNION, INTERSECT, EXCEPT, of the same families."""
        families = [self.chance.choice((NUMBER, TEXT, DATE)) for _ in range(self.chance.randint(1, 2))]
        word = self.chance.choice(("union", "union all", "intersect", "intersect all", "except", "except all"))
        (one, columns), (other, _) = (self.select(depth - 1, outer, wanted=families) for _ in range(2))
        return self.say(word.upper(), f"({one}) {word} ({other})"), columns

    def select(
        self,
        depth: int,
        outer: tuple[Column, ...],
        tables: Sequence[tuple[str, tuple[Column, ...]]] = (),
        wanted: Sequence[str] | None = None,
    ) -> tuple[str, tuple[Column, ...]]:
        """One SELECT and its columns. `tables`: common tables to read; `wanted`: families of its columns."""
        sources, scope = self.sources(depth, outer, tables)
        where = f" where {self.condition(scope, depth)}" if self.often(0.6) else ""
        if wanted is None and self.often(0.4):
            return self.grouped(sources, scope, where, depth)
        families = wanted or [self.chance.choice((NUMBER, NUMBER, TEXT, TEXT, BOOLEAN, DATE, STAMP)) for _ in range(3)]
        items = [(self.expression(f, scope, 2), f) for f in families[: self.chance.randint(1, 3)] or families]
        if wanted is not None:
            items = [(self.expression(f, scope, 1), f) for f in wanted]
        elif self.often(0.25):
            items.append(self.window(scope))
        elif depth and self.often(0.2):
            items.append((self.scalar_subquery(scope, depth), NUMBER))
        listed = ", ".join(f"{text} as c{k}" for k, (text, _) in enumerate(items))
        columns = tuple((f"c{k}", f) for k, (_, f) in enumerate(items))
        distinct = self.say("DISTINCT", "distinct ") if self.often(0.15) else ""
        tail = self.cut(len(items)) if wanted is None and self.often(0.15) else ""
        return f"select {distinct}{listed} from {sources}{where}{tail}", columns

    def cut(self, width: int) -> str:
        """ORDER BY everything, and a cut."""
        order = ", ".join(f"{k + 1}{self.chance.choice(('', ' desc', ' nulls first'))}" for k in range(width))
        kind = self.chance.choice(("limit 3", "limit 2 offset 1", "offset 2", "fetch first 2 rows with ties", "asked"))
        if kind == "asked":
            kind = f"limit {self.count()}{self.chance.choice(('', f' offset {self.count()}'))}"
            self.used.add("LIMIT by a subquery")
        return self.say(kind.split()[0].upper(), f" order by {order} {kind}")

    def count(self) -> str:
        """How many rows a table has."""
        return f"(select count(*) from {self.chance.choice(list(TABLES))})"

    def grouped(
        self, sources: str, scope: Scope, where: str, depth: int
    ) -> tuple[str, tuple[Column, ...]]:  # fmt: skip
        """GROUP BY with aggregates."""
        plain = replace(scope, outer=())
        keys = [
            (self.expression(f, plain, 1), f)
            for f in self.chance.sample((NUMBER, TEXT, BOOLEAN, DATE), self.chance.randint(0, 2))
        ]
        items = [*keys, *(self.aggregate(plain) for _ in range(self.chance.randint(1, 3)))]
        listed = ", ".join(f"{text} as c{k}" for k, (text, _) in enumerate(items))
        places = [str(k + 1) for k in range(len(keys))]
        form = self.chance.choice(("{}", "{}", "{}", "{}", "rollup ({})", "cube ({})", "grouping sets (({}), ())"))
        by = ""
        if keys:
            by = f" group by {', '.join(places)}"
            if form != "{}":
                by = self.say("GROUPING SETS", f" group by {form.format(', '.join(t for t, _ in keys))}")
        having = self.say("HAVING", " having count(*) > 1") if keys and self.often(0.25) else ""
        del depth
        return f"select {listed} from {sources}{where}{by}{having}", tuple(
            (f"c{k}", f) for k, (_, f) in enumerate(items)
        )

    # FROM

    def sources(
        self, depth: int, outer: tuple[Column, ...], tables: Sequence[tuple[str, tuple[Column, ...]]]
    ) -> tuple[str, Scope]:
        """What is read, joined in any way."""
        text, columns = self.source(depth, tables, ())
        begin = 0  # of the item behind the last comma, whose columns alone a condition sees
        for _ in range(self.chance.choice((0, 0, 1, 1, 2, 3))):
            seen = tuple(columns)
            if depth and self.often(0.08):
                name = self.name()
                inner, found = self.select(depth - 1, seen)
                kind = self.chance.choice(
                    (" cross join lateral ({}) {}", " left join lateral ({}) {} on true", ", lateral ({}) {}")
                )
                begin = len(columns) if kind[0] == "," else begin
                text = self.say("LATERAL", f"{text}{kind.format(inner, name)}")
                columns = [*columns, *((f"{name}.{c}", f) for c, f in found)]
                continue
            if self.often(0.04) and (known := [c for c, f in seen if f == NUMBER]):
                name = self.name()
                made = f"generate_series(1, least({self.chance.choice(known)}, 6)) {name}(n)"
                columns = [*columns, (f"{name}.n", NUMBER)]
                on = self.condition(Scope(tuple(columns[begin:])), 0)
                text = self.say("LEFT JOIN of a function", f"{text} left join lateral {made} on {on}")
                continue
            more, found = self.source(depth, tables, ())
            if self.often(0.06):
                begin, columns = len(columns), [*columns, *found]
                text = self.say("comma in FROM", f"{text}, {more}")
                continue
            kind = self.chance.choice(
                ("join", "join", "join", "left join", "left join", "right join", "full join", "cross join")
            )
            columns = [*columns, *found]
            on = "" if kind == "cross join" else f" on {self.join_condition(seen[begin:], tuple(found), kind)}"
            text = self.say(kind.upper(), f"{text} {kind} {more}{on}")
        return text, Scope(tuple(columns), outer)

    def source(
        self, depth: int, tables: Sequence[tuple[str, tuple[Column, ...]]], outer: tuple[Column, ...]
    ) -> tuple[str, list[Column]]:
        """One thing in FROM."""
        if tables and self.often(0.7):
            name, columns = self.chance.choice(tables)
            alias = self.name()
            return f"{name} {alias}", [(f"{alias}.{c.partition('.')[2]}", f) for c, f in columns]
        name = self.name()
        if depth and self.often(0.12):
            inner, found = self.select(depth - 1, outer)
            return self.say("subquery in FROM", f"({inner}) {name}"), [(f"{name}.{c}", f) for c, f in found]
        if self.often(0.05):
            rows = ", ".join(
                f"({self.chance.choice(LITERALS[NUMBER])}, {self.chance.choice(LITERALS[TEXT])})" for _ in range(3)
            )
            return self.say("VALUES", f"(values {rows}) {name}(a, b)"), [(f"{name}.a", NUMBER), (f"{name}.b", TEXT)]
        if self.often(0.04):
            return self.say("generate_series", f"generate_series(1, {self.chance.randint(2, 6)}) {name}(n)"), [
                (f"{name}.n", NUMBER)
            ]
        table = self.chance.choice(list(TABLES))
        columns = [(f"{name}.{c}", family) for c, spelled in TABLES[table][0].items() if (family := family_of(spelled))]
        return f"{table} {name}", columns

    def join_condition(self, left: Sequence[Column], right: Sequence[Column], kind: str) -> str:
        """Mostly an equality; FULL JOIN takes nothing else in Postgres."""
        pairs = [(a, b) for a, f in left for b, g in right if f == g and f in (NUMBER, TEXT)]
        ids = [(a, b) for a, b in pairs if a.endswith("id") and b.endswith("id")]
        if not pairs:
            return "true"
        a, b = self.chance.choice(ids if ids and self.often(0.8) else pairs)
        condition = f"{a} = {b}"
        if kind != "full join" and self.often(0.2):
            condition = self.say("join by more", f"{condition} and {self.condition(Scope((*left, *right)), 0)}")
        elif kind == "join" and self.often(0.05):
            condition = self.say("join by inequality", f"{a} < {b}")
        return condition

    # conditions and expressions

    def condition(self, scope: Scope, depth: int) -> str:
        """A boolean."""
        if depth and self.often(0.2):
            return self.subquery_condition(scope, depth)
        made = self.expression(BOOLEAN, scope, 2)
        if self.often(0.3):
            made = f"({made} {self.chance.choice(('and', 'or'))} {self.expression(BOOLEAN, scope, 1)})"
        return made

    def subquery_condition(self, scope: Scope, depth: int) -> str:
        """EXISTS, IN, ANY, ALL."""
        outer = (*scope.columns, *scope.outer)
        kind = self.chance.choice(("exists", "not exists", "in", "not in", "any", "all", "row"))
        self.used.add(kind.upper())
        if kind == "row":
            sources, inside = self.sources(depth - 1, outer if self.often(0.5) else (), ())
            values = ", ".join(f"max({self.expression(f, replace(inside, outer=()), 1)})" for f in (NUMBER, TEXT))
            left = ", ".join(self.expression(f, scope, 1) for f in (NUMBER, TEXT))
            return f"({left}) {self.chance.choice(('=', '<>', '<', '>='))} (select {values} from {sources})"
        if kind.endswith("exists"):
            return f"{kind} ({self.select(depth - 1, outer)[0]})"
        family = self.chance.choice((NUMBER, TEXT))
        inner = self.select(depth - 1, outer if self.often(0.5) else (), wanted=[family])[0]
        left = self.expression(family, scope, 1)
        if kind in ("any", "all"):
            return f"{left} {self.chance.choice(('=', '<', '>=', '<>'))} {kind} ({inner})"
        return f"{left} {kind} ({inner})"

    def scalar_subquery(self, scope: Scope, depth: int) -> str:
        """One value of a query, mostly correlated."""
        sources, inner = self.sources(depth - 1, (*scope.columns, *scope.outer), ())
        where = self.condition(inner, depth - 1)
        value, _ = self.aggregate(replace(inner, outer=()), plain=True)
        return self.say("scalar subquery", f"(select {value} from {sources} where {where})")

    def aggregate(self, scope: Scope, *, plain: bool = False) -> Column:
        """An aggregate call. `plain`: of one number."""
        number, text = (self.expression(f, scope, 1) for f in (NUMBER, TEXT))
        choices: list[Column] = [
            ("count(*)", NUMBER), (f"count({text})", NUMBER), (f"sum({number})", NUMBER), (f"avg({number})", NUMBER),
            (f"min({number})", NUMBER), (f"max({number})", NUMBER), (f"count(distinct {text})", NUMBER),
        ]  # fmt: skip
        if not plain:
            choices += [
                (f"min({text})", TEXT), (f"bool_or({self.expression(BOOLEAN, scope, 1)})", BOOLEAN),
                (f"string_agg({text}, ',' order by {text})", TEXT), (f"sum(distinct {number})", NUMBER),
                (f"array_to_string(array_agg({text} order by {text}), '|')", TEXT),
                (f"max({self.expression(DATE, scope, 1)})", DATE),
                (f"var_pop({number})", NUMBER), (f"percentile_disc(0.5) within group (order by {number})", NUMBER),
                (f"jsonb_agg({text} order by {text})::text", TEXT),
                (f"jsonb_agg_strict({text} order by {text})::text", TEXT),
                (f"array_to_string(array_agg(array[{text}, 'x'] order by {text}), '|', '?')", TEXT),
            ]  # fmt: skip
        made, family = self.chance.choice(choices)
        self.used.add(made.partition("(")[0])
        if self.often(0.2) and not made.startswith("array_to"):
            made = made.removesuffix("::text")
            cast = "::text" if made.startswith("jsonb") else ""
            made = self.say("FILTER", f"{made} filter (where {self.expression(BOOLEAN, scope, 1)}){cast}")
        return made, family

    def window(self, scope: Scope) -> Column:
        """A window function whose answer does not hang on the order of equals."""
        plain = replace(scope, outer=())
        number = self.expression(NUMBER, plain, 1)
        part = (
            f"partition by {self.expression(self.chance.choice((TEXT, NUMBER)), plain, 0)} " if self.often(0.6) else ""
        )
        times = self.chance.choice((None, None, None, DATE, STAMP, "time", "interval"))
        order = f"order by {self.expression(NUMBER, plain, 0) if times is None else self.time(times, plain)}"
        step = "1" if times is None else "interval '30 days 12:00'"
        frame = self.chance.choice(("", "", f" range between {step} preceding and {step} following",
                                    " groups between 1 preceding and current row",
                                    f" groups between {self.count()} preceding and current row",
                                    f" range between (select {step}) * {self.count()} preceding and unbounded following"
                                    if times is not None else f" range {self.count()} preceding",
                                    " range between unbounded preceding and current row exclude group"))  # fmt: skip
        name = self.chance.choice(
            ("rank()", "dense_rank()", "count(*)", f"sum({number})", f"max({number})", "cume_dist()")
        )
        if name in ("rank()", "dense_rank()", "cume_dist()"):
            frame = ""
        self.used.add(f"window {name.partition('(')[0]}{' with frame' if frame else ''}")
        return f"{name} over ({part}{order}{frame})", NUMBER

    def time(self, family: str, scope: Scope) -> str:
        """A date or time, of day or since another."""
        if family in (DATE, STAMP):
            return self.expression(family, scope, 0)
        stamp = self.expression(STAMP, scope, 0)
        return f"({stamp})::time" if family == "time" else f"({stamp} - timestamp '2024-01-01')"

    def expression(self, family: str, scope: Scope, depth: int) -> str:
        """A value of a family."""
        known = scope.of(family)
        if not depth or self.often(0.35):
            return self.chance.choice(known) if known and self.often(0.85) else self.chance.choice(LITERALS[family])
        made: Callable[[Scope, int], str] = getattr(self, f"_{family}")
        return made(scope, depth - 1)

    def _number(self, s: Scope, d: int) -> str:
        n, t = (lambda: self.expression(NUMBER, s, d)), (lambda: self.expression(TEXT, s, d))
        return self.one_of(
            lambda: f"({n()} {self.chance.choice('+-*')} {n()})", lambda: f"coalesce({n()}, {n()})", lambda: f"length({t()})",
            lambda: f"abs({n()})", lambda: f"-({n()})", lambda: f"round({n()})",
            lambda: f"case when {self.expression(BOOLEAN, s, d)} then {n()} else {n()} end",
            lambda: f"greatest({n()}, {n()})", lambda: f"nullif({n()}, {n()})", lambda: f"({n()} / nullif({n()}, 0))",
            lambda: f"extract(year from {self.expression(DATE, s, d)})", lambda: f"position({t()} in {t()})",
            lambda: f"({self.expression(DATE, s, d)} - {self.expression(DATE, s, d)})", lambda: f"floor({n()} * 1.5)",
        )  # fmt: skip

    def _text(self, s: Scope, d: int) -> str:
        t, n = (lambda: self.expression(TEXT, s, d)), (lambda: self.expression(NUMBER, s, d))
        return self.one_of(
            lambda: f"({t()} || {t()})", lambda: f"upper({t()})", lambda: f"lower({t()})", lambda: f"coalesce({t()}, {t()})",
            lambda: f"substring({t()} from 2 for 2)", lambda: f"left({t()}, 2)", lambda: f"replace({t()}, 'a', 'o')",
            lambda: f"concat({t()}, {n()})", lambda: f"case {t()} when {t()} then {t()} else {t()} end", lambda: f"trim({t()})",
            lambda: f"nullif({t()}, {t()})", lambda: f"({n()})::text",
            lambda: f"to_char({self.expression(DATE, s, d)}, 'YYYY-MM')",
            lambda: f"regexp_replace({t()}, '[aeiou]', '_', 'g')",
            lambda: f"split_part({t()}, 'b', 1)", lambda: f"lpad({t()}, 4, '*')",
            lambda: f"array_to_string(array_sort(array_fill(({t()})::text, array[2]) || ({t()})::text), ',', '?')",
            lambda: f"md5({t()})", lambda: f"initcap({t()})", lambda: f"reverse({t()})",
        )  # fmt: skip

    def _boolean(self, s: Scope, d: int) -> str:
        family = self.chance.choice((NUMBER, NUMBER, TEXT, DATE, STAMP))
        x, b = (lambda: self.expression(family, s, d)), (lambda: self.expression(BOOLEAN, s, d))
        t = lambda: self.expression(TEXT, s, d)  # noqa: E731
        return self.one_of(
            lambda: f"{x()} {self.chance.choice(('=', '<>', '<', '<=', '>', '>='))} {x()}",
            lambda: f"{x()} {self.chance.choice(('=', '<>', '<', '<=', '>', '>='))} {x()}",
            lambda: f"({b()} {self.chance.choice(('and', 'or'))} {b()})", lambda: f"not ({b()})", lambda: f"{x()} is null",
            lambda: f"({b()}) is not true", lambda: f"{x()} is distinct from {x()}", lambda: f"{x()} in ({x()}, {x()})",
            lambda: f"{x()} between {x()} and {x()}", lambda: f"{t()} like '%b%'", lambda: f"{t()} ~ '^[a-o]'",
            lambda: f"{t()} ilike 'a%'", lambda: f"({x()}, {t()}) = ({x()}, {t()})", lambda: f"{x()} = any (array[{x()}, {x()}])",
        )  # fmt: skip

    def _date(self, s: Scope, d: int) -> str:
        e = lambda: self.expression(DATE, s, d)  # noqa: E731
        return self.one_of(
            lambda: f"({e()} + 7)", lambda: f"coalesce({e()}, {e()})", lambda: f"({self.expression(STAMP, s, d)})::date",
            lambda: f"least({e()}, {e()})",
        )  # fmt: skip

    def _stamp(self, s: Scope, d: int) -> str:
        e = lambda: self.expression(STAMP, s, d)  # noqa: E731
        return self.one_of(
            lambda: f"date_trunc('month', {e()})", lambda: f"coalesce({e()}, {e()})",
            lambda: f"({e()} + interval '1 day 2 hours')",
            lambda: f"({self.expression(DATE, s, d)})::timestamp",
        )  # fmt: skip

    def one_of(self, *ways: Callable[[], str]) -> str:
        """One of several ways, drawn when it is chosen."""
        return self.chance.choice(ways)()
