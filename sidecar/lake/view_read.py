"""`spark.read.format("headrace")`: a view, or a table, at one epoch.

Always: all that one read gives is of one epoch, the one at which the running sidecar answers, or that of the checkpoint where
none runs. A table of a checkpoint is read from its files, a partition a shard; a view is worked out from them by one
task where no sidecar answers. Called by Spark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.connectors.commit_place import CommitPlace, place_of
from headrace.connectors.lsn import lsn_number
from headrace.engine.batch.updates import Updates
from headrace.engine.schema import Column
from headrace.engine.trace.lookup import content
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.client import Client, NotRunning
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.table_traces import table_traces
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.lake.key_filters import conditions
from headrace.sidecar.lake.view_schema import Asked, ReadError, as_spark, from_texts
from headrace.sidecar.state.batch_places import Batches
from headrace.sidecar.state.batch_store import BatchFile, BatchStore, load_batches
from headrace.sidecar.state.checkpoint import Manifest
from headrace.sidecar.wiring.project import tables_of
from headrace.sidecar.wiring.run_states import newest_run

_ROWS = 50_000
"""So many rows a batch that Spark is given."""


class FromSidecar(InputPartition):
    """The whole answer of the running sidecar."""

    def __init__(self) -> None:
        super().__init__(0)


class FromShard(InputPartition):
    """One shard's batches of a table in a checkpoint."""

    def __init__(self, shard: int, files: Sequence[BatchFile], epoch: int) -> None:
        super().__init__(shard)
        self.files, self.epoch = tuple(files), epoch


class FromCheckpoint(InputPartition):
    """A view, worked out from a checkpoint."""

    def __init__(self, epoch: int) -> None:
        super().__init__(0)
        self.epoch = epoch


@dataclass(frozen=True)
class Moment:
    """Which epoch is asked for: by its number, or by the least LSN that a source must have passed."""

    epoch: int | None = None
    lsn: int | None = None
    source: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Moment:
        """Read the options."""
        numbers = {}
        for name in ("epoch", "lsn"):
            text = options.get(name)
            if text is not None and name == "lsn" and "/" in text:
                numbers[name] = lsn_number(text)
            elif text is not None and not text.isdecimal():
                raise ReadError("an option is no whole number", option=name, value=text)
            elif text is not None:
                numbers[name] = int(text)
        return cls(numbers.get("epoch"), numbers.get("lsn"), options.get("source"))

    def check(self, epoch: int, sources: Mapping[str, CommitPlace], name: str, since: int | None = None) -> None:
        """Raise ReadError where what is at hand, `epoch` alone, is not what is asked for."""
        if self.epoch is not None and self.epoch != epoch:
            nearest = f"{since} to {epoch}" if since is not None and since < epoch else str(epoch)
            raise ReadError("this epoch is not at hand", epoch=self.epoch, nearest=nearest, of=name,
                            hint="read without an epoch for the newest one")  # fmt: skip
        if self.lsn is not None:
            named = self.source or (next(iter(sources)) if len(sources) == 1 else None)
            if named is None or named not in sources:
                raise ReadError("which source the LSN is of is not known", sources=", ".join(sorted(sources)),
                                hint=".option('source', …)")  # fmt: skip
            if sources[named].order < self.lsn:
                raise ReadError("the source's LSN is not reached yet", lsn=self.lsn, reached=sources[named].order, source=named,
                                hint="read again a little later")  # fmt: skip


class ViewReader(DataSourceReader):
    """One read. What is at hand is looked up when Spark plans it, and read by tasks, wherever they run: the state folder, or
    the sidecar's HTTP address, must be within their reach."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._moment = Moment.of(options)
        self._where: list[str] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """See DataSourceReader. Spark looks at all of them again."""
        asked = Asked(self._options)
        key = asked.schema.key if asked.is_table else asked.view.key
        self._where = conditions(filters, [asked.schema.columns[k] for k in key or ()])
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """See DataSourceReader."""
        asked = Asked(self._options)
        if self._options.get("from") != "checkpoint":
            try:
                Client(asked.settings, self._options.get("url"), patience=10.0).status()
                return [FromSidecar()]
            except NotRunning:
                if self._options.get("from") == "sidecar":
                    raise
        manifest = asked.manifest
        if manifest is None:
            raise ReadError("no sidecar answers, and there is no checkpoint", state=asked.settings.state,
                            hint="start it: headrace run")  # fmt: skip
        places = {name: source.place for name, source in manifest.sources.items()}
        if not asked.is_table:
            self._moment.check(manifest.epoch, places, asked.name)
            return [FromCheckpoint(manifest.epoch)]
        return _shards(asked, manifest, self._moment, places)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceReader."""
        asked = Asked(self._options)
        if isinstance(partition, FromSidecar):
            yield from _ask(asked, self._options.get("url"), self._moment, self._where)
        elif isinstance(partition, FromShard):
            rows = _shard_rows(asked, partition)
            yield from _given(asked, rows)
        elif isinstance(partition, FromCheckpoint):
            yield from _given(asked, _view_rows(asked, partition.epoch))


def _ask(asked: Asked, url: str | None, moment: Moment, where: Sequence[str]) -> Iterator[pa.RecordBatch]:
    columns = ", ".join('"' + c.name.replace('"', '""') + '"' for c in asked.columns)
    of = ".".join('"' + part + '"' for part in asked.name.split(".", 1)) if asked.is_table else f'"{asked.name}"'
    text = f"select {columns} from {of}" + (f" where {' and '.join(where)}" if where else "")  # noqa: S608
    lines = Client(asked.settings, url).stream("POST", "/query", {"sql": text, "json": False})
    first = next(iter(lines))
    moment.check(first["epoch"], {n: place_of(s) for n, s in first["sources"].items()}, asked.name)
    for line in lines:
        rows = from_texts(asked.columns, line["part"])
        yield as_spark(asked.columns, rows, asked.name)


def _shards(
    asked: Asked, manifest: Manifest, moment: Moment, places: Mapping[str, CommitPlace]
) -> Sequence[InputPartition]:
    (name, _), _ = table_traces(asked.name, asked.tables[asked.name])
    if name not in manifest.arrangements:
        raise ReadError("the checkpoint does not hold the table", table=asked.name, hint="does a view read it?")
    files = manifest.arrangements[name]
    epoch = manifest.epoch
    if moment.epoch is not None:
        since = _since(asked, files)
        if since <= moment.epoch <= epoch:
            epoch = moment.epoch
        moment.check(epoch, places, asked.name, since)
    moment.check(epoch, places, asked.name)
    return [FromShard(k, [f for f in files if f.shard == k], epoch) for k in range(manifest.workers)]


def _since(asked: Asked, files: Sequence[BatchFile]) -> int:
    """The first epoch at which the files can be read faithfully."""
    batches = _batches(asked, files)
    return max((b.description.since.elements[0].epoch for b in batches if b.description.since.elements), default=0)


def _batches(asked: Asked, files: Sequence[BatchFile]) -> list[Any]:
    (name, layout), _ = table_traces(asked.name, asked.tables[asked.name])
    return load_batches({name: files}, _place(asked.settings), {name: layout})[name]


def _place(settings: Settings) -> Batches:
    run = newest_run(settings)
    if run is None:
        raise ReadError("there is no checkpoint", state=settings.store or settings.state)
    return run.place


def _shard_rows(asked: Asked, partition: FromShard) -> Updates:
    (_, layout), _ = table_traces(asked.name, asked.tables[asked.name])
    return content(layout, _batches(asked, partition.files), partition.epoch)


def _view_rows(asked: Asked, epoch: int) -> Updates:
    """The view as the checkpoint's tables have it: made from what the checkpoint keeps of it, or anew."""
    place, manifest = _place(asked.settings), asked.manifest
    if manifest is None or manifest.epoch != epoch:
        raise ReadError("the checkpoint was replaced while it was read", view=asked.name, epoch=epoch,
                        hint="read again")  # fmt: skip
    views = asked.views
    needed = {t for v in _with_read(views, asked.name) for t in tables_of(v)}
    plans = Plans.of(views, {t: asked.tables[t] for t in needed}, {asked.name})
    with tempfile.TemporaryDirectory() as scratch:
        flow = KeptDataflow(BatchStore(place))
        flow.registry.place = BatchStore(Path(scratch)).placed  # nothing is written beside the sidecar's own
        flow.build(plans, plans.schemas)
        flow.recover(epoch + 1, manifest.arrangements, manifest.workers)
        for _ in flow.hydrating():
            pass
        rows, errors = flow.outputs[asked.name].snapshot(epoch)
        if len(errors):
            raise ReadError(
                "the view is in error", view=asked.name, error=errors.rows.column(0)[0].as_py(), epoch=epoch
            )
        return rows


def _with_read(views: Sequence[Any], name: str) -> list[Any]:
    """A view and those that it reads."""
    wanted, found = {name}, []
    for view in reversed(views):
        if view.name in wanted:
            wanted |= set(view.reads)
            found.append(view)
    return found


def _given(asked: Asked, updates: Updates) -> Iterator[pa.RecordBatch]:
    """Each row as often as it is there."""
    columns: Sequence[Column] = asked.columns
    places = np.repeat(np.arange(len(updates)), updates.diffs)
    for start in range(0, len(places), _ROWS):
        rows = updates.rows.take(pa.array(places[start : start + _ROWS]))
        yield as_spark(columns, rows.select(list(asked.positions)), asked.name)
