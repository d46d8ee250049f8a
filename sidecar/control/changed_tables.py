"""Tables that a running sidecar reads and that `headrace.yaml` declares otherwise now: what `apply` may take in while it runs.

Invariant: the rows that are there go on under the new columns, in the epoch in which the views take force. A view that names
an added column waits until the table is read from its source; no other view misses a transaction. What rows cannot be carried
through (another key, another type that is not wider, a table without a key) is refused by name. Called by `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.connectors.commands import Added
from headrace.connectors.commit_place import Lsn
from headrace.connectors.formats.topic_names import table_topic
from headrace.engine.schema import DataType, Kind, Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig, TableConfig
from headrace.sidecar.control.plan import ApplyError, TableChange
from headrace.sidecar.operations.new_partitions import Capture
from headrace.sidecar.operations.resync import Resync
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.wiring.build import Running
from headrace.sidecar.wiring.factories import lettered, schema_policies, table_specs

_RESTART = (
    "start again: the state folder stays, the table is read from its source, and views that do not name it miss no "
    "transaction"
)
_WIDER = {
    Kind.SMALLINT: {Kind.INTEGER, Kind.BIGINT, Kind.NUMERIC},
    Kind.INTEGER: {Kind.BIGINT, Kind.NUMERIC},
    Kind.BIGINT: {Kind.NUMERIC},
    Kind.REAL: {Kind.DOUBLE},
    Kind.DATE: {Kind.TIMESTAMP},
    Kind.VARCHAR: {Kind.TEXT},
    Kind.TEXT: {Kind.VARCHAR},
}
_DIGITS = {Kind.SMALLINT: 5, Kind.INTEGER: 10, Kind.BIGINT: 19}


def changes_of(running: Running, settings: Settings) -> dict[str, TableChange]:
    """The tables that are read and that `settings` declares otherwise. Raises ApplyError for one that needs a start."""
    found, read = {}, running.runtime.parts.tables
    for source in settings.config.sources:
        for table in source.tables or ():
            now, before = table.schema_of(), read.get(table.name)
            if now is not None and before is not None:
                change = _change(running, source, table, before, now)
                if change.does_anything:
                    _check(running.runtime, settings.path, source, change, before)
                    found[table.name] = change
    return found


def _change(running: Running, source: SourceConfig, table: TableConfig, before: Schema, now: Schema) -> TableChange:
    old, new = {c.name: c for c in before.columns}, {c.name: c for c in now.columns}
    renamed = {
        c.name: c.renamed_from
        for c in now.columns
        if c.name not in old and c.renamed_from is not None and c.renamed_from in old
    }
    stays = {name: old[renamed.get(name, name)] for name in new if renamed.get(name, name) in old}
    other = tuple(n for n, was in stays.items() if (was.type, was.digits) != (new[n].type, new[n].digits))
    known = {
        *running.runtime.parts.commands.partitions(source.name).get(table.name, ()),
        *(
            p
            for s in running.settings.config.sources
            for t in s.tables or ()
            if t.name == table.name
            for p in t.partitions
        ),
    }
    return TableChange(
        table=table.name,
        schema=now,
        added=tuple(n for n in new if n not in stays),
        dropped=tuple(n for n in old if n not in new and n not in renamed.values()),
        renamed=renamed,
        retyped=other,
        partitions=tuple(p for p in table.partitions if p not in known),
        redeclared=before != now or bool(other),
    )


def _check(runtime: Runtime, path: Path, source: SourceConfig, change: TableChange, before: Schema) -> None:
    """Raise ApplyError for what the rows that are there cannot be carried through."""
    now, old = change.schema, {c.name: c for c in before.columns}
    keys = [None if s.key is None else [(s.columns[k].name, s.columns[k].type) for k in s.key] for s in (before, now)]
    what = ""
    if source.type != "debezium":
        what = "the tables of a Spark publisher are declared before a start"
    elif keys[0] != keys[1]:
        what = "its key is declared otherwise"
    elif keys[0] is None and change.redeclared:
        what = "it has no key, so that its rows cannot be told from what they were"
    for name in () if what else change.retyped:
        was, is_ = old[change.renamed.get(name, name)], now.columns[now.position(name)]
        if not widens(was.type, is_.type):
            what = f"column {name} is {is_.type} instead of {was.type}, which is no wider type"
        elif is_.digits < was.digits:
            what = f"column {name} has fewer digits of its seconds"
    if not what and (change.added or change.partitions) and source.database is None:
        what = "new columns and partitions are read from the source, and it has no `database:`"
    if what:
        raise ApplyError(
            f"a table that is read is declared otherwise: {what}", table=change.table, file=path, hint=_RESTART
        )
    check_at_rest(runtime, [change.table])


def check_at_rest(runtime: Runtime, tables: Sequence[str]) -> None:
    """Raise ApplyError where one of the tables is suspended, or is being read from its source. Called again at the cut-over."""
    stopped = {stop.table for intake in runtime.parts.intakes for stop in intake.assembler.stops}
    reading = {job.table for job in runtime.jobs if isinstance(job, Resync)}
    for table in tables:
        if table in stopped:
            raise ApplyError("a table that is declared otherwise is suspended", table=table, hint=_RESTART)
        if table in reading:
            raise ApplyError("a table that is declared otherwise is being read from its source", table=table,
                             hint="nothing was changed; try again in a moment")  # fmt: skip


def widens(was: DataType, now: DataType) -> bool:
    """Whether every value of a type is one of another, and stays what it is by an exact cast.

    >>> widens(DataType.parse("int"), DataType.parse("bigint")), widens(DataType.parse("bigint"), DataType.parse("int"))
    (True, False)
    >>> widens(DataType.parse("varchar(5)"), DataType.parse("varchar(4)"))
    False
    """
    if was == now:
        return True
    if was.kind is Kind.OTHER and now.kind is Kind.OTHER:
        return was.name == now.name and _in_order(was.labels, now.labels)
    if was.kind is Kind.NUMERIC and now.kind is Kind.NUMERIC:
        return (
            was.fixed_scale and now.fixed_scale and _holds(now, (was.precision or 0) - (was.scale or 0), was.scale or 0)
        )
    if now.kind is not was.kind and now.kind not in _WIDER.get(was.kind, ()):
        return False
    if now.kind is Kind.NUMERIC:
        return now.fixed_scale and _holds(now, _DIGITS[was.kind], 0)
    if now.kind in (Kind.VARCHAR, Kind.TEXT):
        return now.length is None or (was.length is not None and was.length <= now.length)
    return now.kind is not was.kind


def _holds(now: DataType, digits: int, scale: int) -> bool:
    """Whether a numeric has so many digits before and behind the point."""
    of = now.scale or 0
    return now.precision is not None and 0 <= scale <= of and now.precision - of >= digits


def _in_order(was: tuple[str, ...] | None, now: tuple[str, ...] | None) -> bool:
    """Whether an enum has gained labels and those that it had stand in their order."""
    return was is not None and now is not None and [label for label in now if label in was] == list(was)


def announce(running: Running, settings: Settings, changes: Mapping[str, TableChange]) -> list[Added]:
    """The command log knows which of these are to be read from their source; those. Raises CommandsError and ApplyError."""
    out, runtime = [], running.runtime
    for change in changes.values():
        source = _source(settings, change.table)
        at = runtime.sources.get(source.name)
        if at is None:
            raise ApplyError("the source's snapshot is being read", source=source.name, table=change.table,
                             hint="try again once it is: `headrace status` says what is missing")  # fmt: skip
        [intake] = [i for i in runtime.parts.intakes if i.name == source.name]
        here = {*change.schema.names, *change.renamed.values()}
        lost = any(table == change.table and column in here for table, column in intake.lost.columns)
        if change.added or change.partitions or lost:
            out.append(Added(source=source.name, table=change.table, place=at.place.next(), captured=False, kept=True))
    runtime.parts.commands.keep(*out)
    return out


def take_in(runtime: Runtime, settings: Settings, changes: Mapping[str, TableChange]) -> None:
    """From now on these are read as they are declared. Called by the loop, in the moment in which their views take force."""
    for change in changes.values():
        source = _source(settings, change.table)
        [intake] = [i for i in runtime.parts.intakes if i.name == source.name]
        specs = table_specs(source)
        assert specs is not None, "the table is declared with its columns"
        policies = schema_policies(source, [change.table])
        intake.lost.policies = {**intake.lost.policies, **policies}
        if intake.letters is not None:
            intake.lettered |= lettered(source, [change.table])
        intake.redeclare(change.table, change.schema, specs[change.table].precisions, change.added)
        for partition in change.partitions:
            topic = table_topic(source.topic_prefix, partition)
            if change.table not in intake.tables_at.get(topic, frozenset()):
                intake.add_partition(partition, topic, change.table)


def read(
    running: Running, settings: Settings, changes: Mapping[str, TableChange], commands: Sequence[Added]
) -> list[dict[str, Any]]:
    """Have the tables read from their source by a resync; what became of each: `why` where it is to be done by hand."""
    told, log = [], running.runtime.parts.commands
    for command in commands:
        source, partitions = _source(settings, command.table), changes[command.table].partitions
        lsn, why = Capture()(source, command.table, list(partitions)) if partitions else (-1, "")
        if not why:
            log.keep(
                Added(
                    source=source.name,
                    table=command.table,
                    place=max(Lsn(lsn), command.place),
                    captured=True,
                    kept=True,
                )
            )
        told.append({"table": command.table, "source": source.name, "why": why, "kept": True})
    return told


def _source(settings: Settings, table: str) -> SourceConfig:
    return next(s for s in settings.config.sources if table in {t.name for t in s.tables or ()})
