"""Connector preflight: compares each registered connector with what headrace.yaml expects, before a run.

Invariant: a finding that would make answers wrong stops the run before anything is opened. Wiring calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace

from headrace.connectors.debezium.config_rules import ENCODINGS, LOST_NANOSECONDS, Finding, check, refused
from headrace.connectors.debezium.connect import ConnectError, check_registered
from headrace.connectors.formats.encodings import Form, Wire, declared_precision, from_declared
from headrace.connectors.formats.table_specs import CannotDecode, ConfigurationRefused, Encodings
from headrace.engine.schema import DataType
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import ColumnConfig, SourceConfig


def check_connectors(settings: Settings, begun: Callable[[], Set[str]] = frozenset) -> None:
    """Check what is registered with Connect for each source that names it (decision 5). Raises ConnectError.

    `begun`: the sources whose tables a checkpoint has: their connector may be without a snapshot.
    """
    for source in settings.config.sources:
        if source.connect is None or source.type != "debezium":
            continue
        checked = check_registered(source.connect, source.topic_prefix)
        wrong = refused(findings(source, checked.config))
        if any(_no_snapshot(f) for f in wrong) and source.name in begun():
            wrong = [f for f in wrong if not _no_snapshot(f)]
        if wrong:
            raise ConnectError(str(wrong[0]), source=source.name, connector=checked.name, setting=wrong[0].setting,
                               findings=len(wrong), hint=f"set {wrong[0].setting}={wrong[0].wanted}")  # fmt: skip


def _no_snapshot(finding: Finding) -> bool:
    return (finding.setting, finding.value) == ("snapshot.mode", "no_data")


def findings(source: SourceConfig, connector: Mapping[str, str]) -> list[Finding]:
    """What is wrong with a connector's configuration beside what headrace.yaml says of the source."""
    captured = None if source.tables is None else {t.name: t.partitions for t in source.tables}
    return [*check(connector, captured, declared_modes(source, connector)), *_lost(source, connector)]


def _lost(source: SourceConfig, connector: Mapping[str, str]) -> list[Finding]:
    """The declared columns in which a NULL may stand for a timestamp that nanoseconds do not hold."""
    setting = "time.precision.mode"
    if connector.get(setting, "").strip().lower() != "nanoseconds":
        return []
    nanoseconds = replace(encodings_of(source), time_precision_mode="nanoseconds")
    found = []
    for table in source.tables or ():
        for column in table.columns or ():
            wire = _wire(column, nanoseconds)
            nullable = column.nullable and column.name not in (table.key or ())
            if wire and ((wire.form is Form.STAMP_NS and nullable) or wire.element == Wire(Form.STAMP_NS)):
                why = f"{LOST_NANOSECONDS}, in {column.name} of {table.name} for one"
                found.append(Finding(setting, "nanoseconds", "microseconds", why))
    return found


def unchecked(settings: Settings) -> tuple[str, ...]:
    """The sources whose connector nobody looks at, because the configuration does not say where Connect is."""
    return tuple(s.name for s in settings.config.sources if s.type == "debezium" and s.connect is None)


def encodings_of(source: SourceConfig) -> Encodings:
    """By which modes the values of a source are decoded."""
    return Encodings(
        time_precision_mode=source.time_precision_mode,
        decimal_handling_mode=source.decimal_handling_mode,
        binary_handling_mode=source.binary_handling_mode,
        hstore_handling_mode=source.hstore_handling_mode,
        interval_handling_mode=source.interval_handling_mode,
        unavailable_value=source.unavailable_value,
    )


def declared_modes(source: SourceConfig, connector: Mapping[str, str]) -> Mapping[str, str]:
    """The connector's settings by which the source's values are decoded, and the TOAST placeholder.

    A setting is left out if every declared column is decoded alike without it.
    """
    own = encodings_of(source)
    columns = [c for t in source.tables or () for c in t.columns or ()]
    modes = {"unavailable.value.placeholder": own.unavailable_value}
    for setting, default in ENCODINGS.items():
        name = setting.replace(".", "_")
        try:
            theirs = replace(own, **{name: connector.get(setting, default).strip()})
        except ConfigurationRefused:
            theirs = None
        if theirs is None or any(_wire(c, own) != _wire(c, theirs) for c in columns):
            modes[setting] = getattr(own, name) or "string"
    return modes


def _wire(column: ColumnConfig, encodings: Encodings) -> Wire | None:
    try:
        return from_declared(DataType.parse(column.data_type), encodings, declared_precision(column.data_type))
    except CannotDecode:
        return None
