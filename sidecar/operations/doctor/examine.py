"""One round of the doctor: every subject that was asked for, each looked at on its own.

Always: a server that does not answer is a finding of its subject, and the other subjects are still examined. Called by the
command, and each minute by a running sidecar.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.connectors.sink import SinkView
from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import PostgresSinkConfig, Settings
from headrace.sidecar.operations.doctor.connector import check_connector
from headrace.sidecar.operations.doctor.findings import Finding, Subject, refused
from headrace.sidecar.operations.doctor.host import Machine, check_host
from headrace.sidecar.operations.doctor.kafka import check_topics
from headrace.sidecar.operations.doctor.sinks import check_sink
from headrace.sidecar.operations.doctor.source import LIMITS, Limits, check_source
from headrace.sidecar.wiring.project import read_project, sink_view
from headrace.views.compile import CompiledView

EVERY = tuple(Subject)


@dataclass(frozen=True)
class Examination:
    """What to look at. `source_url`: asked instead of the configuration's `database:`. `views`: those in force, where known;
    else those of the folder.
    """

    subjects: Collection[Subject] = EVERY
    source_url: str | None = None
    limits: Limits = LIMITS
    machine: Machine | None = None
    views: Sequence[CompiledView] | None = None


def examine(settings: Settings, examination: Examination | None = None) -> list[Finding]:
    """The findings, subject by subject."""
    asked = examination or Examination()
    found: list[Finding] = []
    for source in settings.config.sources:
        connector = None
        if {Subject.KAFKA, Subject.SOURCE} & set(asked.subjects):
            of_connector, connector = check_connector(source)
            found += of_connector if Subject.KAFKA in asked.subjects else []
        if Subject.SOURCE in asked.subjects:
            url = asked.source_url or (source.database.get_secret_value() if source.database else None)
            config = None if connector is None else {**connector.config, "name": connector.name}
            found += check_source(source, url, config, asked.limits)
    if Subject.KAFKA in asked.subjects:
        found += check_topics(settings)
    if Subject.SINK in asked.subjects:
        found += _sinks(settings, asked.views)
    if Subject.SELF in asked.subjects:
        found += check_host(settings, asked.machine)
    return sorted(found, key=lambda f: EVERY.index(f.subject))


def _sinks(settings: Settings, compiled: Sequence[CompiledView] | None) -> list[Finding]:
    found: list[Finding] = []
    views: dict[str, Sequence[SinkView]] = {}
    try:
        if compiled is None:
            project = read_project(settings)
            compiled = () if project.unknown else project.compile()
        if compiled:
            views = {s.name: [sink_view(v) for v in compiled if s.name in v.spec.sinks] for s in settings.config.sinks}
    except HeadraceError as error:
        found.append(
            refused(
                Subject.SINK, "views", str(settings.views), str(error), "a start would be refused", "headrace validate"
            )
        )
    for sink in settings.config.sinks:
        if isinstance(sink, PostgresSinkConfig):
            found += check_sink(sink, views.get(sink.name, ()))
    return found
