"""The bank: transfers among accounts in three tables, random DML beside them, and what must hold at every commit.

Always: in each committed transaction the balances add up to TOTAL, and a ledger whose ids have no gap has one entry a
transfer, of which a writer may keep the newest alone, while each transfer counts one move on each of its accounts. `wrong` is
the invariant, over sums that a reader found. A second source has a bank of its own, and a view joins the two: it must show one
commit of each.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

BRANCHES = ("branch_a", "branch_b", "branch_c")
ACCOUNTS, OWNERS = 60, 7
TOTAL = ACCOUNTS * 1000


class Half(NamedTuple):
    """A source with a bank: its name and topic prefix, the schema of its tables, and what its views' names begin with."""

    source: str
    schema: str
    prefix: str


ONE, OTHER = Half("bank", "public", ""), Half("club", "club", "club_")

DDL = (
    *(f"create table {b} (id int primary key, owner int not null, balance bigint not null, moves bigint not null)"
      for b in BRANCHES),
    "create table owner (id int primary key, name text not null)",
    "create table ledger (id bigint primary key, amount bigint not null, memo text)",
    "create table noise (k int primary key, v text, n numeric(12,2))",
    "create table crowd (v int, w text)",
    "alter table crowd replica identity full",
)  # fmt: skip

_ACCOUNT = (("id", "integer"), ("owner", "integer"), ("balance", "bigint"), ("moves", "bigint"))
COLUMNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(BRANCHES, _ACCOUNT),
    "owner": (("id", "integer"), ("name", "text")),
    "ledger": (("id", "bigint"), ("amount", "bigint"), ("memo", "text")),
    "noise": (("k", "integer"), ("v", "text"), ("n", "numeric(12,2)")),
    "crowd": (("v", "integer"), ("w", "text")),
}

VIEWS = {
    "accounts": " union all ".join(f"select id, owner, balance, moves from {b}" for b in BRANCHES),
    "total": "select sum(balance) as total, sum(moves) as moves, count(*) as accounts from accounts",
    "wealth": "select o.name, sum(a.balance) as balance, count(*) as accounts from accounts a "
    "join owner o on o.id = a.owner group by o.name",
    "entries": "select count(*) as entries, min(id) as oldest, max(id) as last, sum(amount) as amount from ledger",
    "noisy": "select k, v, n from noise where n > 0",
    "crowded": "select v, w from crowd",
    "by_length": "select length(v) as length, count(*) as times, sum(n) as n from noise group by length(v)",
}


BOTH = {
    "together": "select a.id, a.balance, a.moves, c.balance as club_balance, c.moves as club_moves "
    "from accounts a join club_accounts c on c.id = a.id",
}
"""Views over the tables of both sources."""


def tables(half: Half = ONE) -> list[str]:
    """Their names."""
    return [f"{half.schema}.{name}" for name in COLUMNS]


def views(half: Half = ONE) -> dict[str, str]:
    """The views of one source."""
    if half is ONE:
        return VIEWS
    names = {**{t: f"{half.schema}.{t}" for t in COLUMNS}, "accounts": f"{half.prefix}accounts"}
    word = re.compile(rf"\b(from|join) ({'|'.join(names)})\b")
    return {half.prefix + n: word.sub(lambda m: f"{m[1]} {names[m[2]]}", text) for n, text in VIEWS.items()}


def views_of(halves: Sequence[Half]) -> dict[str, str]:
    """All views."""
    return {n: t for half in halves for n, t in views(half).items()} | (BOTH if len(halves) > 1 else {})


def tables_yaml(half: Half = ONE) -> list[dict[str, Any]]:
    """The tables as headrace.yaml declares them."""
    out: list[dict[str, Any]] = []
    for name, columns in COLUMNS.items():
        table: dict[str, Any] = {
            "name": f"{half.schema}.{name}", "columns": [{"name": c, "data_type": t} for c, t in columns]
        }  # fmt: skip
        if name != "crowd":
            table["key"] = [columns[0][0]]
        out.append(table)
    return out


def views_yaml(halves: Sequence[Half] = (ONE,)) -> str:
    """The views, in both sinks."""
    each = [{"name": n, "sinks": ["warehouse", "bus"], "sql": text} for n, text in views_of(halves).items()]
    return json.dumps({"version": 1, "views": each})


def create(db: psycopg.Connection[Any], draw: random.Random, half: Half = ONE) -> None:
    """Tables and their first rows, in one transaction; whoever connects finds them by their names alone."""
    here, schema = sql.Identifier(db.info.dbname), sql.Identifier(half.schema)
    with db.transaction():
        db.execute(sql.SQL("create schema if not exists {}").format(schema))
        db.execute(sql.SQL("alter database {} set search_path = {}").format(here, schema))
        db.execute(sql.SQL("set local search_path = {}").format(schema))
        for statement in DDL:
            db.execute(statement)
        for i in range(OWNERS):
            db.execute("insert into owner values (%s, %s)", (i, f"owner {i}"))
        for i in range(ACCOUNTS):
            branch = sql.Identifier(BRANCHES[i % 3])
            db.execute(sql.SQL("insert into {} values (%s, %s, 1000, 0)").format(branch), (i, draw.randrange(OWNERS)))
        db.execute("insert into noise select i, repeat('x', i), i from generate_series(1, 20) i")


@dataclass
class Sums:
    """What one reader found at one frontier; None where a view is empty. `entries`: how many, the oldest, the last."""

    accounts: int
    moves: int
    total: tuple[Any, ...]
    wealth: int
    entries: tuple[Any, ...]
    together: tuple[int, int] | None = None


@dataclass
class Faults:
    """What readers found wrong: entries of the ledger that are lost or doubled, and states that are of no one commit."""

    lost: int = 0
    doubled: int = 0
    torn: int = 0
    told: list[str] = field(default_factory=list)

    def check(self, where: str, found: Sums) -> None:
        """Count what is wrong with one state."""
        gone = int(found.entries[1] or 1) - 1
        entries, last = int(found.entries[0]) + gone, int(found.entries[2] or 0)
        self.lost += max(0, last - entries)
        self.doubled += max(0, entries - last)
        whole = (TOTAL, 2 * entries, (TOTAL, 2 * entries, ACCOUNTS), TOTAL)
        here = (found.accounts, found.moves, tuple(int(v) for v in found.total), found.wealth)
        if found.together is not None:  # what the view over both sources has of this one
            whole, here = (*whole, TOTAL, 2 * entries), (*here, *found.together)  # type: ignore[assignment]
        if whole != here:
            self.torn += 1
        if entries != last or whole != here:
            self.told.append(f"{where}: {here} instead of {whole}, {entries} entries up to {last}")

    @property
    def any(self) -> bool:
        return bool(self.lost or self.doubled or self.torn)


class Writer(threading.Thread):
    """Transfers and random DML until `stop`; a connection that is lost is made anew, and what was committed looked up.

    `works`, `rests`: seconds after which it rests, and how long, so that whoever compares finds a frontier that stays.
    `keeps`: so many entries of the ledger stay; all of them where it is 0.
    """

    def __init__(
        self, url: str, seed: int, rate: float, *, works: float = math.inf, rests: float = 0.0, keeps: int = 0
    ) -> None:
        super().__init__(daemon=True)
        self.url, self.draw, self.rate = url, random.Random(seed), rate
        self.works, self.rests, self.keeps = works, rests, keeps
        self.done = self.lost_answers = 0
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._entry = 0

    def run(self) -> None:
        """Until told to stop."""
        try:
            while not self.stopping.is_set():
                try:
                    with psycopg.connect(self.url, connect_timeout=2) as db:
                        self._go_on(db)
                except psycopg.OperationalError:
                    self.lost_answers += 1
                    self.stopping.wait(0.1)
        except BaseException as failure:
            self.failure = failure

    def stop(self) -> None:
        """End after the transaction in flight. Raises what it met."""
        self.stopping.set()
        self.join(30)
        if self.failure is not None:
            raise self.failure

    def _go_on(self, db: psycopg.Connection[Any]) -> None:
        found = db.execute("select coalesce(max(id), 0) from ledger").fetchone()
        assert found is not None, "an aggregate has a row"
        self._entry = found[0]
        db.rollback()
        begin, first = time.monotonic(), self.done
        while not self.stopping.is_set():
            with contextlib.suppress(psycopg.errors.UniqueViolation):
                self._transact(db)
                self.done += 1
            ahead = begin + (self.done - first) / self.rate - time.monotonic()
            if ahead > 0:
                self.stopping.wait(ahead)
            if time.monotonic() - begin > self.works:
                self.stopping.wait(self.rests)
                begin, first = time.monotonic(), self.done

    def _transact(self, db: psycopg.Connection[Any]) -> None:
        roll = self.draw.random()
        with db.transaction(force_rollback=roll < 0.05), db.pipeline():
            if roll < 0.75:
                self._transfer(db)
            if roll > 0.6:
                self._noise(db)
            if 0.7 < roll < 0.75:
                db.execute("savepoint s")
                self._noise(db)
                db.execute("rollback to savepoint s")
        if 0.05 <= roll < 0.75:
            self._entry += 1

    def _transfer(self, db: psycopg.Connection[Any]) -> None:
        one, two = sorted(self.draw.sample(range(ACCOUNTS), 2))
        amount = self.draw.randrange(-50, 50)
        for account, sign in ((one, -1), (two, 1)):
            statement = sql.SQL("update {} set balance = balance + %s, moves = moves + 1 where id = %s")
            db.execute(statement.format(sql.Identifier(BRANCHES[account % 3])), (sign * amount, account))
        db.execute("insert into ledger values (%s, %s, %s)", (self._entry + 1, amount, "m" * self.draw.randrange(20)))
        if self.keeps:
            db.execute("delete from ledger where id <= %s", (self._entry + 1 - self.keeps,))

    def _noise(self, db: psycopg.Connection[Any]) -> None:
        draw = self.draw
        k, text, n = draw.randrange(80), "y" * draw.randrange(30), draw.randrange(-500, 5000) / 100
        roll = draw.random()
        if roll < 0.45:
            db.execute(
                "insert into noise values (%s, %s, %s) on conflict (k) do update set v = excluded.v, n = excluded.n",
                (k, text, n),
            )
        elif roll < 0.6:
            db.execute("delete from noise where k = %s", (k,))
        elif roll < 0.7:
            db.execute("update noise set k = k + 1000 where k = %s and k < 1000", (k,))
        elif roll < 0.72:
            db.execute("truncate noise")
        elif roll < 0.78:
            db.execute("delete from noise where k >= 1000")
        elif roll < 0.8:
            db.execute("update owner set name = name where id = %s", (k % OWNERS,))
        elif roll < 0.92:
            db.execute("insert into crowd values (%s, %s)", (k % 5, text[:2]))
        else:
            db.execute("delete from crowd where ctid = (select min(ctid) from crowd where v = %s)", (k % 5,))
