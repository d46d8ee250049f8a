"""The rules of a Debezium connector's configuration: what it must say for its topics to be understood.

`check` reads a configuration as Connect's REST gives it. Each finding names the setting, its value, the right one and why.
Pure; `headrace init` and `run` call it, through `headrace.connectors.debezium.connect`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.connectors.debezium.settings import CONNECTOR_CLASS, JSON_CONVERTER

UNSET = "(not set)"


@dataclass(frozen=True)
class Finding:
    """One setting that is wrong (`refused`: what depends on it must not start) or better otherwise (an advice)."""

    setting: str
    value: str
    wanted: str
    why: str
    refused: bool = True

    def __str__(self) -> str:
        return f"{self.setting} is {self.value}, wanted {self.wanted}: {self.why}"


@dataclass(frozen=True)
class Rule:
    """A setting with its default in Debezium, the values that are right (the first is the one to propose), and why."""

    setting: str
    default: str
    right: tuple[str, ...]
    why: str
    refused: bool = True


RULES: tuple[Rule, ...] = (
    Rule("connector.class", UNSET, (CONNECTOR_CLASS,), "only Debezium's Postgres connector is understood"),
    Rule("provide.transaction.metadata", "false", ("true",), "without it no transaction is known to be whole"),
    Rule("topic.transaction", "transaction", ("transaction",), "the sidecar reads <prefix>.transaction"),
    Rule("topic.delimiter", ".", (".",), "the sidecar looks for <prefix>.<schema>.<table>"),
    Rule("topic.heartbeat.prefix", "__debezium-heartbeat", ("__debezium-heartbeat",), "heartbeats come there", False),
    Rule(
        "topic.naming.strategy", "io.debezium.schema.SchemaTopicNamingStrategy",
        ("io.debezium.schema.SchemaTopicNamingStrategy", "io.debezium.schema.DefaultTopicNamingStrategy"),
        "the sidecar looks for <prefix>.<schema>.<table>",
    ),
    Rule("skipped.operations", "t", ("none",), "a skipped TRUNCATE leaves its rows in every view permanently"),
    Rule("skip.messages.without.change", "false", ("false",), "skipped events still count in a transaction's end"),
    Rule("tombstones.on.delete", "true", ("true",), "other readers of the topics cannot compact them", False),
    Rule("event.processing.failure.handling.mode", "fail", ("fail",), "an event that cannot be read would be lost"),
    Rule(
        "event.converting.failure.handling.mode", "warn", ("fail",),
        "a value that cannot be converted would be NULL in every view",
    ),
    Rule("errors.tolerance", "none", ("none",), "a record that cannot be converted would be lost"),
    Rule("slot.drop.on.stop", "false", ("false",), "what is committed while the connector is stopped would be lost"),
    Rule("field.name.adjustment.mode", "none", ("none",), "columns would come under other names"),
    Rule("interval.handling.mode", "numeric", ("string",), "numeric turns months into an average of days", False),
    Rule(
        "snapshot.mode", "initial", ("initial", "when_needed", "always"),
        "the tables' content before the slot was made would be missing, or no change would follow it",
    ),
    Rule(
        "producer.override.enable.idempotence", "false", ("true",),
        "rows that a late answer has sent twice are counted twice, and a snapshot seems whole before it is", False,
    ),
    Rule(
        "notification.enabled.channels", UNSET, ("sink",),
        "the rows of each table's snapshot are told there: without them a snapshot is never known to be complete",
    ),
)  # fmt: skip

LOST_NANOSECONDS = "timestamps before 1677-09-21 and after 2262-04-11 arrive as NULL"

_HARMLESS_TRANSFORMS = frozenset(
    {
        "org.apache.kafka.connect.transforms.InsertHeader",
        "io.debezium.transforms.tracing.ActivateTracingSpan",
    }
)
_DIGITS = re.compile(r"^\d+$")


ENCODINGS = {
    "time.precision.mode": "adaptive",
    "decimal.handling.mode": "precise",
    "binary.handling.mode": "bytes",
    "hstore.handling.mode": "json",
    "interval.handling.mode": "numeric",
}
"""Settings by which values without schema are decoded, with Debezium's defaults."""

_PLACEHOLDER = "unavailable.value.placeholder"


def check(
    config: Mapping[str, str],
    captured: Mapping[str, Sequence[str]] | None = None,
    declared: Mapping[str, str] | None = None,
) -> list[Finding]:
    """What is wrong with a connector's configuration, in a fixed order; an empty list means nothing is.

    `captured`: the tables that must be captured, "schema.table" → its leaves if it is partitioned. `declared`: by which
    modes the reader decodes, by the connector's own names (those of `ENCODINGS`, and the TOAST placeholder): where the
    connector encodes otherwise, values would be read wrongly and in silence.
    """
    found: list[Finding] = [f for rule in RULES if (f := _apply(rule, config))]
    for part in _CHECKS:
        found += part(config)
    if captured is not None:
        found += _capture(config, captured)
    if declared is not None:
        found += _agreement(config, declared)
    return found


def _agreement(config: Mapping[str, str], declared: Mapping[str, str]) -> list[Finding]:
    """Whether the reader decodes as the connector encodes."""
    found = []
    usual = {_PLACEHOLDER: "__debezium_unavailable_value", **({} if _schemas(config) else ENCODINGS)}
    for setting, default in usual.items():
        value = config.get(setting, default).strip()
        wanted = declared.get(setting, value)
        if value != wanted:
            why = "headrace.yaml says otherwise, and values without schema would be read wrongly: correct either"
            found.append(Finding(setting, value if setting in config else f"{value} (by default)", wanted, why))
    return found


def refused(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that forbid a run."""
    return [f for f in findings if f.refused]


def _apply(rule: Rule, config: Mapping[str, str]) -> Finding | None:
    value = config.get(rule.setting, rule.default).strip()
    given = (
        {v.strip().lower() for v in value.split(",")}
        if rule.setting == "notification.enabled.channels"
        else {value.lower()}
    )
    if any(r.lower() in given for r in rule.right):
        return None
    shown = value if rule.setting in config else (UNSET if value == UNSET else f"{value} (by default)")
    return Finding(rule.setting, shown, rule.right[0], rule.why, rule.refused)


def _schemas(config: Mapping[str, str]) -> bool:
    return config.get("value.converter.schemas.enable", "true").strip().lower() == "true"


def _converters(config: Mapping[str, str]) -> list[Finding]:
    found = []
    for side in ("key", "value"):
        name = f"{side}.converter"
        value = config.get(name)
        if value is None:
            why = "the worker's own converter is used, which cannot be seen from here"
            found.append(Finding(name, UNSET, JSON_CONVERTER, why, refused=False))
        elif value != JSON_CONVERTER:
            found.append(Finding(name, value, JSON_CONVERTER, "only JSON is decoded"))
    setting = "value.converter.replace.null.with.default"
    if config.get(setting, "true").strip().lower() != "false":
        why = "the converter would write a column's DEFAULT where the row holds NULL"
        found.append(Finding(setting, config.get(setting, "true (by default)"), "false", why))
    return found


def _decimals(config: Mapping[str, str]) -> list[Finding]:
    setting, mode = "decimal.handling.mode", config.get("decimal.handling.mode", "precise").strip().lower()
    shown = config.get(setting, "precise (by default)")
    if mode == "double":
        return [Finding(setting, shown, "string", "numerics arrive rounded to 53 bits", refused=False)]
    if mode == "precise" and "value.converter" in config and not _schemas(config):
        return [
            Finding(setting, shown, "string", "the scale of a precise decimal stands in the schema, which is not sent")
        ]
    if mode == "precise" and config.get("value.converter.decimal.format", "BASE64").strip().upper() != "BASE64":
        why = "decimals as JSON numbers lose digits on their way"
        return [Finding("value.converter.decimal.format", config["value.converter.decimal.format"], "BASE64", why)]
    return []


def _times(config: Mapping[str, str]) -> list[Finding]:
    mode = config.get("time.precision.mode", "adaptive").strip().lower()
    if mode == "nanoseconds":
        return [Finding("time.precision.mode", "nanoseconds", "microseconds", LOST_NANOSECONDS, refused=False)]
    if mode == "connect":
        why = "milliseconds only: the rest is cut off"
        return [Finding("time.precision.mode", "connect", "microseconds", why, refused=False)]
    return []


def _transforms(config: Mapping[str, str]) -> list[Finding]:
    found = []
    for name in filter(None, (n.strip() for n in config.get("transforms", "").split(","))):
        kind = config.get(f"transforms.{name}.type", UNSET)
        if kind not in _HARMLESS_TRANSFORMS:
            why = "a transform that unwraps, filters, renames or routes breaks the counts of whole transactions"
            found.append(Finding(f"transforms.{name}.type", kind, "no transform", why))
    return found


def _topics(config: Mapping[str, str]) -> list[Finding]:
    found = []
    prefix = config.get("topic.prefix", "")
    for name, value in sorted(config.items()):
        if name.startswith("topic.creation.") and name.endswith(".cleanup.policy") and "compact" in value:
            found.append(Finding(name, value, "delete", "compaction takes events out of transactions"))
    transaction = f"{prefix}.transaction"
    setting, count = _partitions(config, transaction)
    if _DIGITS.match(count) and int(count) > 1:
        found.append(
            Finding(setting, count, "1", f"{transaction} must have one partition: its order is the commits' order")
        )
    if "notification.enabled.channels" in config:
        wanted, name = f"{prefix}.notifications", "notification.sink.topic.name"
        if config.get(name) != wanted:
            found.append(Finding(name, config.get(name, UNSET), wanted, "the sidecar reads it there"))
    return found


def _partitions(config: Mapping[str, str], topic: str) -> tuple[str, str]:
    """The setting that decides how many partitions Connect gives `topic`, and its value."""
    for group in filter(None, (g.strip() for g in config.get("topic.creation.groups", "").split(","))):
        included = _matches(config.get(f"topic.creation.{group}.include", ""), topic)
        excluded = _matches(config.get(f"topic.creation.{group}.exclude", ""), topic)
        setting = f"topic.creation.{group}.partitions"
        if included and not excluded and setting in config:
            return setting, config[setting].strip()
    setting = "topic.creation.default.partitions"
    return setting, config.get(setting, "").strip()


def _matches(expressions: str, name: str) -> bool:
    """Whether one of Debezium's comma-separated expressions matches the whole name. Unreadable ones match nothing."""
    for expression in filter(None, (e.strip() for e in expressions.split(","))):
        try:
            if re.fullmatch(expression, name, re.IGNORECASE):
                return True
        except re.error:
            continue
    return False


def _heartbeats(config: Mapping[str, str]) -> list[Finding]:
    interval = config.get("heartbeat.interval.ms", "0").strip()
    if interval in ("", "0"):
        why = "a quiet database holds back its frontier and its replication slot"
        return [Finding("heartbeat.interval.ms", interval or UNSET, "1000", why, refused=False)]
    if not config.get("heartbeat.action.query", "").strip():
        why = "a heartbeat without a captured change carries no LSN and moves neither frontier nor slot"
        return [Finding("heartbeat.action.query", UNSET, "an update of a captured table", why, refused=False)]
    return []


def _contents(config: Mapping[str, str]) -> list[Finding]:
    """Settings that change what a row holds, or which rows there are."""
    found = []
    for name in sorted(config):
        if not config[name].strip():
            continue
        if name == "snapshot.select.statement.overrides":
            found.append(
                Finding(name, config[name], UNSET, "rows left out of the snapshot are missing from every view")
            )
        elif name == "message.key.columns":
            found.append(Finding(name, config[name], UNSET, "changes of one row must share one key, its primary key"))
        elif re.match(r"column\.(mask|truncate)\.", name):
            found.append(Finding(name, config[name], UNSET, "views see the masked values", refused=False))
        elif name in ("column.include.list", "column.exclude.list"):
            why = "headrace.yaml must list exactly the columns that come"
            found.append(Finding(name, config[name], UNSET, why, refused=False))
    return found


def _signals(config: Mapping[str, str]) -> list[Finding]:
    """Incremental snapshots without watermarks in the stream."""
    asked = config.get("signal.data.collection", "").strip() or config.get("signal.enabled.channels", "").strip()
    if config.get("read.only", "false").strip().lower() != "true" or not asked:
        return []
    why = "rows of an incremental snapshot would come before the transactions that they show: let it write to its signal table"
    return [Finding("read.only", config["read.only"], "false", why)]


_CHECKS: tuple[Callable[[Mapping[str, str]], list[Finding]], ...] = (
    _converters, _decimals, _times, _transforms, _topics, _heartbeats, _contents, _signals,
)  # fmt: skip


def _capture(config: Mapping[str, str], captured: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Whether every table, and every leaf of a partitioned one, comes once."""
    via_root = config.get("publish.via.partition.root", "false").strip().lower() == "true"
    include, exclude = config.get("table.include.list"), config.get("table.exclude.list")
    found = []

    def listed(table: str) -> bool:
        if include is not None:
            return _matches(include, table)
        return not (exclude is not None and _matches(exclude, table))

    for table, leaves in captured.items():
        if not leaves or via_root:
            missing = [] if listed(table) else [table]
            twice = [leaf for leaf in leaves if include is not None and listed(leaf)]
        else:
            missing = [leaf for leaf in leaves if not listed(leaf)]
            twice = [table] if include is not None and listed(table) else []
        if missing:
            why = f"changes of {', '.join(missing)} would never come"
            found.append(Finding("table.include.list", include or UNSET, ", ".join(missing) + " in it", why))
        if twice:
            why = f"{table} and its partitions are both captured: the snapshot's rows would come twice"
            found.append(Finding("table.include.list", include or UNSET, ", ".join(twice) + " not in it", why))
    return found
