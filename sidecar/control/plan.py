"""The plan of a changed folder of views: what happens to each view, which arrangements it shares and adds, the bytes to expect.

Invariant: it starts and changes nothing, and refuses by name what cannot be done. A view that is gone from the folder, or
from a sink, loses its result table only when that was asked for. `plan` and `apply` call it, with a running sidecar's views
or those of its state folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.node import Node
from headrace.engine.dataflow.shard import drawn
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.wiring.project import tables_of
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_views
from headrace.views.lineage import WHOLE, rests_on
from headrace.views.render import render
from headrace.views.spec import ViewSpec

NOTHING: Mapping[str, TableChange] = {}
UPDATE_BYTES, FIXED_BYTES, TEXT_BYTES = 40, 8, 24
"""Bytes that an update of an arrangement takes, and a value of it: for estimates only."""


class ApplyError(HeadraceError):
    """A changed folder of views cannot be put in force."""

    code = "apply"


@dataclass(frozen=True)
class Held:
    """An arrangement that stands: updates and bytes."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class Expected:
    """An arrangement that a view adds, with what it may come to hold at most, as far as that can be told."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class TableChange:
    """A table that is read and is declared otherwise now. `renamed`: column → the one whose values it takes; `retyped`: of a
    wider type; `partitions`: those that are new; `redeclared`: its columns are others, or in another order."""

    table: str
    schema: Schema
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    retyped: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    redeclared: bool = True

    @property
    def does_anything(self) -> bool:
        """Whether there is anything to do."""
        return self.redeclared or bool(self.partitions)

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        lists = {k: list(getattr(self, k)) for k in ("added", "dropped", "retyped", "partitions")}
        return {"table": self.table, **lists, "renamed": dict(self.renamed)}


@dataclass(frozen=True)
class ViewAction:
    """What becomes of a view. `action`: added, changed (its own SQL, key or sinks), rebuilt (a view it reads changed),
    dropped, kept (gone from the folder, but not dropped without the word), unchanged. `loses`: sinks that drop its table."""

    view: str
    action: str
    why: str
    sinks: tuple[str, ...]
    loses: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    adds: tuple[Expected, ...] = ()


@dataclass(frozen=True)
class ViewsPlan:
    """A change from the views in force to those of the folder. `specs`, `views`: what is in force afterwards. `tables_to_load`:
    those of `tables_added` whose rows a load must bring."""

    fates: tuple[ViewAction, ...]
    specs: tuple[ViewSpec, ...]
    views: tuple[CompiledView, ...]
    tables_dropped: tuple[str, ...]
    tables_added: tuple[str, ...] = ()
    tables_to_load: tuple[str, ...] = ()
    tables_changed: Mapping[str, TableChange] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.tables_added or self.tables_changed) or any(
            f.action not in ("unchanged", "kept") for f in self.fates
        )

    @property
    def redeclared(self) -> dict[str, Schema]:
        """The tables that have other columns afterwards, with those."""
        return {t: change.schema for t, change in self.tables_changed.items() if change.redeclared}

    @property
    def renewed(self) -> tuple[str, ...]:
        """The views that are built."""
        return tuple(f.view for f in self.fates if f.action in ("added", "changed", "rebuilt"))

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        added = {a.name: a for f in self.fates for a in f.adds}
        return {
            "changes": self.changes,
            "views": [dataclasses.asdict(f) for f in self.fates],
            "arrangements_new": len(added),
            "arrangements_shared": len({s for f in self.fates for s in f.shares}),
            "bytes_expected": sum(a.bytes for a in added.values()),
            "tables_dropped": list(self.tables_dropped),
            "tables_added": list(self.tables_added),
            "tables_to_load": list(self.tables_to_load),
            "tables_changed": [change.json() for change in self.tables_changed.values()],
        }


def plan_views(
    old: Sequence[CompiledView],
    folder: Sequence[ViewSpec],
    schemas: Mapping[str, Schema],
    read: Mapping[str, Schema],
    kept: frozenset[str],
    held: Mapping[str, Held],
    *,
    drop: bool,
    workers: int = 1,
    addable: Set[str] = frozenset(),
    changed: Mapping[str, TableChange] = NOTHING,
) -> ViewsPlan:
    """The change from `old`, the views in force, to `folder`.

    `schemas`: of all tables known; `read`: of those that are read now; `kept`: those that are read whatever views say;
    `held`: the arrangements that stand, in so many `workers`; `addable`: tables that can be read from their source; `changed`:
    those of `read` that are declared otherwise. Raises ViewError for what the folder says wrongly, ApplyError for what cannot be
    done while running.
    """
    specs = _wanted(old, folder, drop=drop)
    views = compile_views(specs, Catalog(dict(schemas)))
    _check_tables(views, read.keys() | addable)
    before, names = {v.name: v for v in old}, {s.name for s in folder}
    sketch = _Sketch(views, held, workers)
    renewed = over_tables(views, {t for t, change in changed.items() if change.redeclared})
    fates = [_fate(v, before.get(v.name), names, sketch, renewed) for v in views]
    fates += [
        ViewAction(v.name, "dropped", "it is not in the folder any more", v.spec.sinks, loses=v.spec.sinks)
        for v in old if v.name not in {w.name for w in views}
    ]  # fmt: skip
    needed = {t for v in views for t in tables_of(v)} | kept
    added = tuple(sorted(needed & addable - read.keys()))
    still = {t: change for t, change in changed.items() if t in needed}
    return ViewsPlan(
        tuple(fates), specs, views, tuple(sorted(read.keys() - needed)), tables_added=added, tables_changed=still
    )


def over_tables(views: Sequence[CompiledView], tables: Set[str]) -> frozenset[str]:
    """The views that read one of these tables, through others too."""
    if not tables:
        return frozenset()
    whole = {(table, WHOLE) for table in tables}
    return frozenset(name for name, named in rests_on(views).items() if named & whole)


def _wanted(old: Sequence[CompiledView], folder: Sequence[ViewSpec], *, drop: bool) -> tuple[ViewSpec, ...]:
    """What is to be in force: the folder, and without the word to drop also what has a result table and is gone from it."""
    if drop:
        return tuple(folder)
    before, found = {v.name: v.spec for v in old}, []
    for spec in folder:
        mine = before[spec.name].sinks if spec.name in before else ()
        found.append(dataclasses.replace(spec, sinks=tuple(dict.fromkeys((*spec.sinks, *mine)))))
    names = {s.name for s in folder}
    gone = [v for v in old if v.name not in names]
    needed = {v.name for v in gone if v.spec.sinks}
    for view in reversed(gone):  # each stands after those it reads
        if view.name in needed:
            needed |= set(view.reads) - names
    return (*found, *(v.spec for v in gone if v.name in needed))


def _check_tables(views: Sequence[CompiledView], read: Set[str]) -> None:
    for view in views:
        unread = sorted(set(tables_of(view)) - read)
        if unread:
            raise ApplyError(
                "a view reads a table that this sidecar does not read so far", view=view.name, file=view.spec.file,
                line=view.spec.line, table=unread[0],
                hint="its changes of the past are not here: declare its columns, and `database:` of its debezium source, from "
                "which it is then read; or name it with `keep: true` and start with an empty state folder",
            )  # fmt: skip


def _fate(
    view: CompiledView, was: CompiledView | None, names: set[str], sketch: _Sketch, renewed: Set[str]
) -> ViewAction:
    action, why = "unchanged", ""
    if was is None:
        action, why = "added", "it is new in the folder"
    elif was.fingerprint != view.fingerprint:
        same = (was.spec.sql, was.spec.key) == (view.spec.sql, view.spec.key)
        if not same:
            action, why = "changed", "its SQL or key changed"
        elif was.spec.recursion != view.spec.recursion:
            action, why = "changed", "how its recursion is followed changed"
        else:
            action, why = "rebuilt", "a view or table that it reads changed"
    elif set(was.spec.sinks) != set(view.spec.sinks):
        action, why = "changed", "its sinks changed"
    elif (was.spec.indexes, was.spec.grants) != (view.spec.indexes, view.spec.grants):
        action, why = "changed", "its indexes or grants changed"
    elif was.spec.freshness != view.spec.freshness:
        action, why = "changed", "its limits of freshness changed"
    elif view.name in renewed:
        action, why = "rebuilt", "a table that it reads is declared otherwise"
    elif view.name not in names:
        action, why = "kept", "it is gone from the folder; its result is dropped only by --drop"
    loses = () if was is None else tuple(s for s in was.spec.sinks if s not in view.spec.sinks)
    shares, adds = sketch.of(view.name)
    return ViewAction(view.name, action, why, view.spec.sinks, loses, shares, adds)


class _Sketch:
    """The views rendered where nothing runs, to see which arrangements they are made from."""

    def __init__(self, views: Sequence[CompiledView], held: Mapping[str, Held], workers: int) -> None:
        self._held = held
        self._rows: dict[Node, int] = {}
        flow, self._made = Dataflow(drawn(workers)), dict[str, Collection]()
        for view in views:
            self._made[view.name] = render(view, flow, self._made)

    def of(self, view: str) -> tuple[tuple[str, ...], tuple[Expected, ...]]:
        """Names of the arrangements that stand already, and those to be added."""
        shares, adds = [], []
        for node in reachable([self._made[view].node]):
            for trace in node.traces():
                if trace.name in self._held:
                    shares.append(trace.name)
                else:
                    rows = self._expected(node)
                    adds.append(Expected(trace.name, rows, rows * _width(trace.layout.schema)))
        return tuple(sorted(shares)), tuple(sorted(adds, key=lambda a: a.name))

    def _expected(self, node: Node) -> int:
        """At most so many rows, joins that multiply apart: the largest of what it is made from."""
        found = self._rows.get(node)
        if found is None:
            here = [self._held[t.name].rows for t in node.traces() if t.name in self._held]
            found = self._rows[node] = max(here or [self._expected(n) for n in node.inputs], default=1)
        return found


def _width(schema: Schema) -> int:
    """Bytes of an update: values of variable length are guessed."""
    return UPDATE_BYTES + sum(FIXED_BYTES if _is_fixed(c.type.arrow) else TEXT_BYTES for c in schema.columns)


def _is_fixed(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(arrow) or pa.types.is_decimal(arrow))
