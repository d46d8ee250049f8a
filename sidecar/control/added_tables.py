"""Tables that a running sidecar begins to read: `apply` takes them from `headrace.yaml` as it is now.

Invariant: a table begins empty and its views stand, until its rows come: a database's table is captured by its connector and then
read by a resync, a publisher's is filled by the load that asks. No other view misses a transaction. Called by `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.connectors.commands import Added
from headrace.connectors.commit_place import Lsn, Version
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings, load
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.control.filled_tables import published_tables
from headrace.sidecar.control.plan import ApplyError
from headrace.sidecar.intake.connector_preflight import encodings_of
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.operations.new_partitions import Capture
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.wiring.build import Running
from headrace.sidecar.wiring.factories import lettered, make_dead_letters, schema_policies, table_specs, with_partitions


def settings_now(running: Running) -> Settings:
    """`headrace.yaml` as it is now, but for `engine:`, which a start alone changes, or a rescale. As it was, where the file is
    gone. Raises ConfigError."""
    path, engine = running.settings.path, running.settings.config.engine
    if not path.exists():
        return running.settings
    found = load(path)
    found.config = found.config.model_copy(update={"engine": engine})
    return found


def addable(running: Running, settings: Settings) -> dict[str, Schema]:
    """The tables that a sidecar which has not read them so far can read from their source, or be given by a load."""
    names = {i.name for i in running.runtime.parts.intakes}
    return {
        t.name: schema
        for s in settings.config.sources
        if s.type == "spark" or (s.database is not None and s.name in names)
        for t in s.tables or ()
        if (schema := t.schema_of()) is not None
    }


def declare(
    running: Running, settings: Settings, tables: Sequence[str], filled: Mapping[str, int]
) -> list[Added]:  # fmt: skip
    """The command log knows that these are to be read from their source, before their views are put in force; or are `filled`,
    as of a version each. Raises ApplyError, CommandsError, and ConfigurationRefused for modes under which they cannot be
    decoded."""
    runtime, out, published = running.runtime, [], published_tables(settings)
    unfilled = sorted(published & set(tables) - filled.keys())
    if unfilled:
        raise ApplyError("a publisher's table is to be filled first: its topic need not have all its rows", table=unfilled[0],
                         hint=f"`headrace load {unfilled[0]} --from …` fills it, and puts the folder in force")  # fmt: skip
    runtime.parts.commands.begins_empty(published & set(tables))
    for table in tables:
        if table in published:
            name = source_of(settings, table).name
            runtime.parts.commands.reads(name, table)
            out.append(Added(source=name, table=table, place=Version(filled[table]), captured=False))
            continue
        source = source_of(settings, table)
        specs, at = table_specs(source), runtime.sources.get(source.name)
        if specs is None:
            raise ApplyError("a source's tables are learnt, all or none of them", source=source.name, table=table,
                             hint="declare the columns of each")  # fmt: skip
        encodings_of(source).check(specs[table])
        if at is None:
            raise ApplyError("the source's snapshot is being read", source=source.name, table=table,
                             hint="try again once it is: `headrace status` says what is missing")  # fmt: skip
        runtime.parts.commands.reads(source.name, table)
        out.append(Added(source=source.name, table=table, place=at.place.next(), captured=False))
    runtime.parts.commands.keep(*out)
    return out


def read(runtime: Runtime, settings: Settings, tables: Mapping[str, Schema]) -> None:
    """Take these tables in from now on. The loop calls it when their views take force."""
    for table, schema in tables.items():
        source = source_of(settings, table)
        [intake] = [i for i in runtime.parts.intakes if i.name == source.name]
        if table not in intake.schemas:
            _add(intake, settings, with_partitions(source, runtime.parts.commands), table, schema)
            versions = runtime.parts.commands.filled(source.name)
            if table in versions:
                intake.assembler.filled(table, versions[table])


def _add(intake: Intake, settings: Settings, source: SourceConfig, table: str, schema: Schema) -> None:
    specs = table_specs(source)
    assert specs is not None, "the table is declared with its columns"
    if lettered(source, [table]) and intake.letters is None:
        intake.letters = make_dead_letters(settings)
    intake.lettered |= lettered(source, [table])
    intake.lost.policies = {**intake.lost.policies, **schema_policies(source, [table])}
    intake.add_table(table, schema, specs[table].partitions, specs[table].precisions)


def capture(running: Running, settings: Settings, commands: Sequence[Added]) -> list[dict[str, str]]:
    """Have their connectors capture the tables; what became of each: `why` where it is to be done by hand."""
    told, log = [], running.runtime.parts.commands
    for command in (c for c in commands if not isinstance(c.place, Version)):
        source = source_of(settings, command.table)
        [table] = [t for t in source.tables or () if t.name == command.table]
        try:
            lsn, why = Capture()(source, table.name, table.partitions or [table.name])
            if not why:
                log.keep(Added(source=source.name, table=table.name, place=max(Lsn(lsn), command.place), captured=True))
        except HeadraceError as error:
            why = str(error)
        told.append({"table": table.name, "source": source.name, "why": why})
    return told


def source_of(settings: Settings, table: str) -> SourceConfig:
    """The source that declares a table."""
    return next(s for s in settings.config.sources if table in {t.name for t in s.tables or ()})
