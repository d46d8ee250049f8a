"""Checks a source's connector in Kafka Connect: it must run, and its settings must fit what headrace.yaml expects.

Always: it asks Connect's REST twice at most, and changes nothing. The rules are those by which `run` refuses to start.
Called by `examine`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from headrace.connectors.debezium import config_rules, connect
from headrace.connectors.debezium.settings import include_list
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.intake.connector_preflight import findings
from headrace.sidecar.operations.doctor.findings import Finding, Subject, advice, refused

K = Subject.KAFKA
_REGISTER = 'headrace init --from "$SOURCE_URL" --register --force --connect {connect} --topic-prefix {prefix}'
_REFERENCE = re.compile(r"\$\{[A-Za-z0-9_]+:[^}]+\}")


def check_connector(source: SourceConfig) -> tuple[list[Finding], connect.Described | None]:
    """The findings about a source's connector, and the connector where Connect shows exactly one."""
    if source.type != "debezium":
        return [], None
    if source.connect is None:
        return [
            advice(
                K,
                "connect",
                f"headrace.yaml, source {source.name}",
                "no `connect:` is named",
                "nobody sees whether the connector runs, nor how it is set up: name the address of Kafka Connect's REST",
            )
        ], None
    where = f"{connect.shown_url(source.connect)}, prefix {source.topic_prefix}"
    try:
        found = connect.describe(source.connect, source.topic_prefix)
    except connect.ConnectError as error:
        return [
            refused(
                K,
                "connect_reachable",
                where,
                error.what,
                "no change comes while Connect is down",
                f"curl -fsS {shlex.quote(source.connect)}/",
            )
        ], None
    if not found:
        command = _REGISTER.format(connect=source.connect, prefix=source.topic_prefix)
        return [refused(K, "connector", where, "no connector writes this prefix", "no change comes", command)], None
    if len(found) > 1:
        surplus = f"curl -fsS -X DELETE {shlex.quote(_at(source, found[-1].name))}"
        return [
            refused(
                K,
                "connectors",
                where,
                f"{', '.join(c.name for c in found)} write this prefix",
                "their transactions cannot be told apart: keep one",
                surplus,
            )
        ], None
    one = found[0]
    return [*_state(source, one), *_settings(source, one), *_password(source, one)], one


def _at(source: SourceConfig, name: str) -> str:
    return f"{(source.connect or '').rstrip('/')}/connectors/{name}"


def _state(source: SourceConfig, one: connect.Described) -> Iterator[Finding]:
    where, at = f"connector {one.name}", _at(source, one.name)
    failed = next(((s, t) for s, t in ((one.state, one.trace), *one.tasks) if s == "FAILED"), None)
    if failed is not None:
        lines = failed[1].splitlines()
        causes = [line for line in lines if line.startswith("Caused by:")]
        told = " ".join([*lines[:1], *causes[-1:]])
        yield refused(
            K,
            "connector_failed",
            where,
            f"it has failed: {told}",
            "no change comes: mend the cause first, then start it again",
            f"curl -fsS -X POST {shlex.quote(f'{at}/restart?includeTasks=true&onlyFailed=true')}",
        )
    elif one.state in ("PAUSED", "STOPPED") or any(s in ("PAUSED", "STOPPED") for s, _ in one.tasks):
        yield refused(
            K,
            "connector_paused",
            where,
            f"it is {one.state.lower()}",
            "views do not get fresher, and WAL is kept for it",
            f"curl -fsS -X PUT {shlex.quote(f'{at}/resume')}",
        )
    elif not one.tasks:
        yield refused(
            K,
            "connector_task",
            where,
            "it has no task",
            "no change comes",
            f"curl -fsS -X POST {shlex.quote(f'{at}/restart?includeTasks=true')}",
        )


def _settings(source: SourceConfig, one: connect.Described) -> Iterator[Finding]:
    for found in findings(source, one.config):
        change = _change(found, one)
        command = "" if change is None else _patch(source, one, {found.setting: change[0]})
        made = refused(
            K,
            f"setting_{found.setting}",
            f"connector {one.name}",
            f"{found.setting} is {found.value}, wanted {found.wanted}",
            found.why,
            command,
        )
        yield made if found.refused else replace(made, severity=advice(K, "", "", "", "").severity)


def _change(found: config_rules.Finding, one: connect.Described) -> tuple[str | None] | None:
    """The value to set; a None in it removes the setting. None where there is no single right value."""
    if found.wanted == config_rules.UNSET:
        return (None,)
    if found.setting == "table.include.list" and found.wanted.endswith(" in it") and "not in it" not in found.wanted:
        missing = include_list(found.wanted.removesuffix(" in it").split(", "))
        return (",".join(filter(None, (one.config.get(found.setting), missing))),)
    return None if " " in found.wanted else (found.wanted,)


def _patch(source: SourceConfig, one: connect.Described, change: dict[str, str | None]) -> str:
    """Connect takes a PATCH of a configuration since Kafka 3.8; null takes a setting away."""
    at, body = _at(source, one.name), json.dumps(change)
    return (
        f"curl -fsS -X PATCH -H 'Content-Type: application/json' -d {shlex.quote(body)} {shlex.quote(f'{at}/config')}"
    )


def _password(source: SourceConfig, one: connect.Described) -> Iterator[Finding]:
    value = one.config.get("database.password", "")
    if value and not _REFERENCE.fullmatch(value):
        yield advice(
            K,
            "connector_password",
            f"connector {one.name}",
            "its password stands in Connect's REST answer",
            "whoever may ask Connect can read it: let a config provider of the workers (config.providers) read it from a "
            "file or a variable",
            _patch(source, one, {"database.password": "${env:HEADRACE_SOURCE_PASSWORD}"}),
        )
