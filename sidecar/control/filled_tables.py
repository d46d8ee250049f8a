"""Tables of a publisher that `headrace load` fills beside a running sidecar: of which version their files are, and whether that
fits where the source stands.

Invariant: the files hold all versions of a table up to one of the source, and its topic brings all later ones. A version that
neither would bring is refused by name before anything changes. Called by `apply` and the cut-over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.connectors.formats.topic_names import table_topic
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.control.plan import ApplyError
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.wiring.build import Running
from headrace.sidecar.wiring.topic_reading import PublishedVersions, published_versions

Asked = Mapping[str, int | None]
"""The tables that a load fills, each with the version that it was told its files are."""


def published_tables(settings: Settings) -> frozenset[str]:
    """The tables that publishers write."""
    return frozenset(t.name for s in settings.config.sources if s.type == "spark" for t in s.tables or ())


def versions_of(running: Running, settings: Settings, asked: Asked) -> dict[str, int]:
    """Which version of its source the files of each table are. Raises ApplyError for one that does not fit, SourceError."""
    found = {}
    for table, version in asked.items():
        source = next((s for s in settings.config.sources if table in {t.name for t in s.tables or ()}), None)
        if source is None or source.type != "spark":
            raise ApplyError("only tables of a spark source are filled from files", table=table,
                             hint="`headrace load --from postgres` goes with tables of a database")  # fmt: skip
        found[table] = _version(running.runtime, settings, source, table, version, asked.keys())
        check_published(running.runtime, {table: found[table]})
    return found


def _version(
    runtime: Runtime, settings: Settings, source: SourceConfig, table: str, asked: int | None, together: Collection[str]
) -> int:
    """Of one table. Raises ApplyError."""
    at = runtime.sources.get(source.name)
    given = -1 if at is None else at.place.order
    intake = next((i for i in runtime.parts.intakes if i.name == source.name), None)
    here = _read_to(runtime, intake, source, table)
    there = PublishedVersions(())
    if asked is None or asked < given or here:
        there = published_versions(settings, source, table)
    if asked is None and (there.ends or there.cut):
        last = max((end.version for end in there.ends), default=None)
        raise ApplyError("the table was published before, and nothing says which version of it the files are", table=table,
                         published=last, hint="say it with --version")  # fmt: skip
    version = max(given, 1) if asked is None else asked
    passed = [end.version for end in there.ends if end.version <= given or end.offset < here.get(end.partition, 0)]
    if intake is not None:
        _check_reached(runtime, intake, table, version, max([given, *passed]), together)
    if (last := max(passed, default=-1)) > version:
        raise _missed(table, version, last)
    if version < given and not there.tells_all(version):
        raise ApplyError("the topic has no longer all that was published of the table since the files", table=table,
                         version=version, stands=given, hint=f"load the table as of version {given}")  # fmt: skip
    return version


def _read_to(runtime: Runtime, intake: Intake | None, source: SourceConfig, table: str) -> Mapping[int, int]:
    """Up to where the partitions of a table's topic were read and nothing of it is kept, though no view may read it."""
    if intake is None:
        return {}
    return runtime.tasks.ask(intake.positions).get(table_topic(source.topic_prefix, table), {})


def _check_reached(
    runtime: Runtime, intake: Intake, table: str, version: int, stands: int, together: Collection[str]
) -> None:
    """Raise ApplyError where the files are ahead of what is read, or of a version of which some was let go already."""
    if table in intake.subscribed:
        if table not in runtime.parts.commands.open:
            raise ApplyError("the sidecar reads the table already", table=table,
                             hint="publish what is to change in it")  # fmt: skip
        begun = runtime.parts.commands.filled(intake.name).get(table, -1)
        if version < begun:
            raise ApplyError("a load of the table was begun for a later version, and earlier ones are not read", table=table,
                             version=version, begun=begun, hint=f"load version {begun}")  # fmt: skip
        stands = max(stands, begun)
    elif not intake.subscribed - set(together):
        return  # nothing of the source is read that would have to come there too
    if version > stands:
        raise ApplyError("the source has not come to the version of the files", table=table, version=version, stands=stands,
                         hint="publish that version first, or load the version at which the source stands")  # fmt: skip


def check_published(runtime: Runtime, versions: Mapping[str, int]) -> None:
    """Raise ApplyError for a table of which the source has given a version later than its files."""
    for intake in runtime.parts.intakes:
        for table, version in versions.items():
            last = intake.assembler.published(table)
            if last > version:
                raise _missed(table, version, last)


def _missed(table: str, version: int, last: int) -> ApplyError:
    return ApplyError("the table was published since the files, and the source has passed that version", table=table,
                      version=version, published=last, hint=f"load the table as of version {last} or later")  # fmt: skip
