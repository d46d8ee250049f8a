"""What a folder of views may hold in lives whose views change: each of some views in several definitions, with what SQL answers.

Always: every definition of a view reads the same tables; what a definition is called is the view's name and its number, so
that a judge can tell of which one rows are. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.sim.shop import CUSTOMERS, ORDERS, OVER, VISITS, State

Answer = Callable[[State], Counter[Any] | None]
Choice = Mapping[str, int]
"""By view which of its definitions; a view that is not there is in none."""


@dataclass(frozen=True)
class Definition:
    """`text`: what stands in the file of views but for the name; `answer`: None where SQL answers with an error."""

    text: str
    answer: Answer


def _orders(state: State) -> Counter[Any]:
    return +state.get(ORDERS, Counter())


def _visits(state: State) -> Counter[Any]:
    return +state.get(VISITS, Counter())


def _each(made: Callable[[int, int], Any], keep: Callable[[int, int], bool] = lambda _i, _v: True) -> Answer:
    return lambda state: Counter(made(*row) for row in _orders(state).elements() if keep(*row))


def _divided(by: int) -> Answer:
    def answer(state: State) -> Counter[Any] | None:
        rows = _orders(state)
        return None if any(i * v == by for i, v in rows) else Counter((i, int(12 / (i * v - by))) for i, v in rows)

    return answer


def _counted(rows: Callable[[State], Counter[Any]]) -> Answer:
    def answer(state: State) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for (_, v), n in rows(state).items():
            found[v] += n
        return Counter(dict.fromkeys(found.items(), 1))

    return answer


def _joined(state: State) -> Counter[Any]:
    customers = dict((+state.get(CUSTOMERS, Counter())).keys())
    return Counter((customers[of], of, id_) for id_, of in _orders(state) if of in customers)


def _greatest(state: State) -> Counter[Any]:
    found: dict[int, int] = {}
    for city, _, id_ in _joined(state):
        found[city] = max(id_, found.get(city, id_))
    return Counter(dict.fromkeys(found.items(), 1))


def _reached(state: State) -> Counter[Any]:
    """Which orders lead to which by any number of steps."""
    edges = set(_orders(state))
    found, new = set(edges), set(edges)
    while new:
        new = {(a, d) for a, b in new for c, d in edges if b == c} - found
        found |= new
    return Counter(found)


def _bounded(state: State) -> Counter[Any] | None:
    """As `_reached`, in error where it has more rows than the view's limit."""
    found = _reached(state)
    return found if found.total() <= MOST_REACHED else None


_WALK = (
    "with recursive t(a, b) as (select id, v from public.orders union select t.a, o.v from t join public.orders o on "
    "o.id = t.b) select a, b from t where a > -{}"
)
"""Each definition has a constant of its own, below all ids: the judge knows definitions by their fingerprints, which do not
tell how a recursion is kept nor its limits."""
MOST_REACHED = 9
_JOIN = "from public.orders o join public.customers c on c.id = o.v"
EXTRA = (
    Definition(
        'key: [id], sinks: [s, k], sql: "select id, v from public.orders where v > 2"',
        _each(lambda i, v: (i, v), lambda _, v: v > 2),
    ),
    Definition(
        'key: [id], sinks: [s, k], sql: "select id, v + 1 as v from public.orders"', _each(lambda i, v: (i, v + 1))
    ),
    Definition('key: [id], sinks: [s, k], sql: "select id, v as w from public.orders"', _each(lambda i, v: (i, v))),
    Definition('sinks: [s, k], sql: "select v from public.orders"', _each(lambda _, v: (v,))),
    Definition(
        'key: [v], sinks: [s, k], sql: "select v, count(*) as n from public.orders group by v"', _counted(_orders)
    ),
    Definition(
        'key: [id], sinks: [s], sql: "select id, 2 * v as v from public.orders"', _each(lambda i, v: (i, 2 * v))
    ),
)
DEFINITIONS: dict[str, tuple[Definition, ...]] = {
    "extra": EXTRA,
    "ratio": (
        Definition('key: [id], sinks: [s, k], sql: "select id, 12 / (id * v - 4) as r from public.orders"', _divided(4)),
        Definition('key: [id], sinks: [s, k], sql: "select id, id * v as r from public.orders"', _each(lambda i, v: (i, i * v))),
        Definition('key: [id], sinks: [k, s], sql: "select id, 12 / (id * v - 9) as r from public.orders"', _divided(9)),
    ),
    "pairs": (
        Definition(f'sinks: [s, k], sql: "select c.v, o.v as w {_JOIN}"', lambda s: Counter(r[:2] for r in _joined(s))),
        Definition(f'key: [v], sinks: [s, k], sql: "select c.v, max(o.id) as n {_JOIN} group by c.v"', _greatest),
        Definition(f'key: [n], sinks: [k], sql: "select c.v, o.id as n {_JOIN}"', lambda s: Counter(r[::2] for r in _joined(s))),
    ),
    "tally": (
        Definition(
            'sinks: [s, k], sql: "select id, v from public.visits where id > 3"',
            lambda s: Counter({r: n for r, n in _visits(s).items() if r[0] > 3}),
        ),
        Definition('key: [v], sinks: [s, k], sql: "select v, count(*) as n from public.visits group by v"', _counted(_visits)),
    ),
    "reached": (
        Definition(f'sinks: [s, k], sql: "{_WALK.format(1)}"', _reached),
        Definition(f'sinks: [s, k], recursion: {{strategy: update}}, sql: "{_WALK.format(2)}"', _reached),
        Definition(f'sinks: [s, k], recursion: {{strategy: bootstrap}}, sql: "{_WALK.format(3)}"', _reached),
        Definition(
            f'sinks: [s, k], limits: {{rows: {MOST_REACHED}}}, recursion: {{strategy: update}}, sql: "{_WALK.format(4)}"',
            _bounded,
        ),
        Definition(f'sinks: [s, k], limits: {{rows: {MOST_REACHED}}}, sql: "{_WALK.format(5)}"', _bounded),
        Definition(f'sinks: [s, k], recursion: {{strategy: history}}, sql: "{_WALK.format(6)}"', _reached),
        Definition(
            f'sinks: [s, k], limits: {{rows: {MOST_REACHED}}}, recursion: {{strategy: history}}, sql: "{_WALK.format(7)}"',
            _bounded,
        ),
    ),
    "chained": tuple(
        Definition('sinks: [s, k], sql: "select count(*) as n from extra"', lambda s, d=d: Counter([(d.answer(s).total(),)]))
        for d in EXTRA
    ),
}  # fmt: skip
"""The last is over the first: its number is that one's."""
OVER |= {
    "extra": {ORDERS},
    "ratio": {ORDERS},
    "pairs": {CUSTOMERS, ORDERS},
    "tally": {VISITS},
    "reached": {ORDERS},
    "chained": {ORDERS},
}


def called(view: str, number: int) -> str:
    """What a definition is called."""
    return f"{view}#{number}"


def view_of(name: str) -> str:
    """Whose definition is called so."""
    return name.partition("#")[0]


def all_of(view: str) -> tuple[str, ...]:
    """What the definitions of a view are called; a view that never changes is its own."""
    return tuple(called(view, n) for n in range(len(DEFINITIONS[view]))) if view in DEFINITIONS else (view,)


def text(choice: Choice) -> str:
    """The views of a choice, as they stand in the file."""
    chosen = ((v, DEFINITIONS[v][n].text) for v, n in choice.items())
    return "".join(f"  - {{name: {view}, {rest}}}\n" for view, rest in chosen)


def answers(state: State) -> dict[str, Counter[Any] | None]:
    """What SQL answers over a state of the tables, by definition."""
    return {called(v, n): d.answer(state) for v, ds in DEFINITIONS.items() for n, d in enumerate(ds)}
