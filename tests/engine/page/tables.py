"""The tables of docs/engine.md, each from the engine's own objects after the block above it has run.

Always: a hash is shown by its first four hex digits, which sort as it does. Called by `walk`.
"""

from __future__ import annotations

import ast
from typing import Any

from headrace.engine.batch import Batch, Updates, fingerprint
from headrace.engine.batch.merger import Merger
from headrace.engine.lattice import Frontier
from headrace.engine.operators.reduce import unpacked
from headrace.engine.schema import Schema
from tests.engine.page.walk import ROOT, Diff, Namespace, Table, table

_KINDS = ("upsert", "delete", "truncate", "insert", "retract")


def _values(updates: Updates) -> list[list[object]]:
    columns = [column.to_pylist() for column in updates.rows.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _updates(updates: Updates | None, schema: Schema, *, epoch: int | None = None) -> str:
    rows: list[list[object]] = []
    if updates is not None:
        for row, time, diff in zip(_values(updates), updates.times.tolist(), updates.diffs.tolist(), strict=True):
            if epoch is None or time == epoch:
                rows.append([*row, time, Diff(diff)])
    return table([*schema.names, "time", "diff"], rows)


def _upserts(key: str) -> Table:
    def made(names: Namespace) -> str:
        upserts = names[key]
        columns = [column.to_pylist() for column in upserts.rows.columns]
        rows = [
            [epoch, _KINDS[kind], *row]
            for epoch, kind, *row in zip(upserts.epochs.tolist(), upserts.kinds.tolist(), *columns, strict=True)
        ]
        return table(["epoch", "change", *upserts.rows.schema.names], rows)

    return made


def _short(lane: Any) -> list[str]:
    return [f"{int(value) >> 48:04x}" for value in lane]


def _lanes(batch: Batch, *, ordered: bool = False) -> str:
    """The entries of a batch, in its order."""
    updates = batch.updates()
    keys = _short(batch.layout.keys(updates.rows).hash)
    rows = _short(fingerprint(updates.rows)[0])
    order = [[f"{int(o) & 0xFFFF:04x}"] for o in batch.layout.ids(updates)[2]] if ordered else [[]] * len(keys)
    body: list[list[object]] = [
        [key, *between, row, time, Diff(diff), *values]
        for key, between, row, time, diff, values in zip(
            keys, order, rows, updates.times.tolist(), updates.diffs.tolist(), _values(updates), strict=True
        )
    ]
    names = [f"row: {name}" for name in batch.layout.schema.names]
    return table(["key hash", *(["order"] if ordered else []), "fingerprint", "time", "diff", *names], body)


def _arranged(names: Namespace, label: str, suffix: str) -> Any:
    found = [a for n, a in names["flow"].arrangements().items() if n.startswith(label) and n.endswith(suffix)]
    assert len(found) == 1, f"{label} {suffix}: {len(found)} arrangements"
    return found[0]


def _descriptions(names: Namespace) -> str:
    rows: list[list[object]] = []
    for name, arranged in names["flow"].arrangements().items():
        if len(arranged):
            for batch in arranged.spine.batches():
                d = batch.description
                readers = [r.split("-")[0] for r in arranged.readers if r != "self"]
                rows.append(
                    [_plain(name), d.lower.epoch, d.upper.epoch, d.since.epoch, len(batch), ", ".join(readers) or "—"]
                )
    return table(["arrangement", "lower", "upper", "since", "updates", "readers"], rows)


def _plain(name: str) -> str:
    """The name of an arrangement without the fingerprint of what it indexes."""
    label, _, rest = name.partition("-")
    if "errors" in rest:
        label = f"{label} errors"
    return f"`{label}@{rest.partition('@')[2]}`"


def _filtered(names: Namespace) -> str:
    return _updates(names["paid"].node.delta.rows, names["paid"].schema)


def _pairs(which: int) -> Table:
    def made(names: Namespace) -> str:
        delta = names["seen"]["pairs"][which]
        return _updates(delta.rows, names["placed"].schema)

    return made


def _cities(names: Namespace, updates: Updates, rows: list[int]) -> list[str]:
    at = names["placed"].schema.position("city")
    column = updates.rows.column(at).to_pylist()
    return [column[row] for row in rows]


def _versions(names: Namespace) -> str:
    found = names["seen"]["versions"][-1]
    delta = names["placed"].node.delta.rows
    cities = _cities(names, delta, found.rows.tolist())
    body: list[list[object]] = []
    for k, city in enumerate(cities):
        first = k == 0 or found.groups[k] != found.groups[k - 1]
        note = "before the step" if first else ("no lane changed" if found.same[k] else "")
        body.append([city, int(found.times[k]), *found.lanes[k].tolist(), note])
    return table(["group", "time", "rows", "terms", "low", "high", ""], body)


def _state(names: Namespace) -> str:
    spine = _arranged(names, "accumulators", "@0").spine
    updates = spine.batches()[-1].updates()
    lanes = unpacked(updates.rows.column(1), 4).tolist()
    cities, least = updates.rows.column(0).to_pylist(), updates.rows.column(2).to_pylist()
    body: list[list[object]] = [
        [city, ", ".join(map(str, lane)), value, time, Diff(diff)]
        for city, lane, value, time, diff in zip(
            cities, lanes, least, updates.times.tolist(), updates.diffs.tolist(), strict=True
        )
    ]
    return table(["city", "lanes", "extreme", "time", "diff"], body)


def _output(key: str) -> Table:
    def made(names: Namespace) -> str:
        rows, errors = names[key]
        assert not len(errors)
        return _updates(rows, names["by_city"].schema)

    return made


def _before_merge(names: Namespace) -> str:
    return "\n".join(_lanes(batch) for batch in _arranged(names, "orders-", "@0").spine.batches())


def _after_merge(names: Namespace) -> str:
    spine = _arranged(names, "orders-", "@0").spine
    assert spine.since == Frontier.at(2)
    earlier, later = spine.batches()
    merger = Merger(earlier, later, spine.since)
    while not merger.done:
        merger.work(1)
    return _lanes(merger.result())


def _imported(names: Namespace) -> str:
    return _updates(names["content"], names["late"].schema)


def _sparse(key: str) -> Table:
    """The rows of a state with their rounds and counts, by round."""

    def made(names: Namespace) -> str:
        columns, rounds, counts = names[key]
        rows = zip(*(c.to_pylist() for c in columns), rounds.tolist(), counts.tolist(), strict=True)
        head = [*names["close"].schema.names[:-1], "round", "count"]
        return table(head, [list(row) for row in sorted(rows, key=lambda r: (r[2], r))])

    return made


def _files(names: Namespace) -> str:
    """Every module of the engine with the first sentence of its docstring."""
    rows: list[list[object]] = []
    for path in sorted((ROOT / "engine").rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        if path.name != "__init__.py":
            first = " ".join(text.split("\n\n")[0].split())
            rows.append([f"`{path.relative_to(ROOT).as_posix()}`", first])
    return table(["file", "what it is"], rows)


TABLES: dict[str, Table] = {
    "upserts of orders": _upserts("order_changes"),
    "upserts of customers": _upserts("customer_changes"),
    "updates of orders": lambda n: _updates(n["orders"].node.delta.rows, n["orders"].schema),
    "updates of customers": lambda n: _updates(n["customers"].node.delta.rows, n["customers"].schema),
    "batch of orders": lambda n: _lanes(_arranged(n, "orders-", "@0").spine.batches()[-1]),
    "updates of paid": _filtered,
    "batch of paid": lambda n: _lanes(_arranged(n, "filter-", "@1").spine.batches()[-1]),
    "arrangements": _descriptions,
    "pairs of new orders": _pairs(-2),
    "pairs of new customers": _pairs(-1),
    "pairs": lambda n: _updates(n["placed"].node.delta.rows, n["placed"].schema),
    "versions": _versions,
    "batch of values": lambda n: _lanes(_arranged(n, "project-", "@0^1").spine.batches()[-1], ordered=True),
    "state": _state,
    "first output": _output("first"),
    "second output": _output("second"),
    "two batches": _before_merge,
    "merged": _after_merge,
    "imported": _imported,
    "reachable": lambda n: _updates(n["third"][0], n["reachable"].schema),
    "by bootstrap": _sparse("by_bootstrap"),
    "by update": _sparse("by_update"),
    "put out by update": lambda n: _updates(n["left"][0], n["close"].schema),
    "after the switch": _sparse("after_switch"),
    "account": lambda n: table(
        ["bootstraps", "updates", "dropped"], [[getattr(n["account"], k) for k in ("bootstraps", "updates", "dropped")]]
    ),
    "files": _files,
}
