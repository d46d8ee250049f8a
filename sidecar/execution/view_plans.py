"""Compiled views as plans to be built: in this process, or in each worker, which is sent them.

It builds the views that are put out and the views that they read, each after those it reads. Wiring makes one, and so does a
query of a running sidecar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.schema import Schema
from headrace.views.compile import CompiledView
from headrace.views.render import render


@dataclass(frozen=True)
class Plans:
    """Views over their tables, to be built wherever a dataflow runs: in this process, or in each worker.

    `views`: each after those it reads; `out`: those that are put out; `tables`: those that are to be declared.
    """

    views: tuple[CompiledView, ...]
    out: frozenset[str]
    tables: Mapping[str, Schema]

    @classmethod
    def of(cls, views: Sequence[CompiledView], tables: Mapping[str, Schema], out: Set[str] | None = None) -> Plans:
        """The views put out, without `out` all that a sink gets or that check others, and those that they read.

        They are without what leads back to files, which another process has not read.
        """
        names = {v.name for v in views if v.spec.sinks or v.spec.check} if out is None else out
        wanted = set(names)
        for view in reversed(views):
            if view.name in wanted:
                wanted |= set(view.reads)
        found = (replace(v, spec=replace(v.spec, locate=None)) for v in views if v.name in wanted)
        return cls(tuple(found), frozenset(names), tables)

    def __call__(self, flow: Dataflow) -> Mapping[str, Collection]:
        """Build all; those that are put out."""
        for name in sorted(self.tables):
            flow.table(name, self.tables[name])
        rendered: dict[str, Collection] = {}
        for view in self.views:
            rendered[view.name] = render(view, flow, rendered)
        return {v.name: rendered[v.name] for v in self.put_out}

    def only(self, out: Set[str]) -> Plans:
        """The same, but that of them only these are put out."""
        return replace(self, out=self.out & out)

    @property
    def put_out(self) -> list[CompiledView]:
        """The views that are put out."""
        return [v for v in self.views if v.name in self.out]

    @property
    def schemas(self) -> dict[str, Schema]:
        """The columns of those."""
        return {v.name: Schema(v.schema.columns) for v in self.put_out}
