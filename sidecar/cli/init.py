"""`headrace init`: prints what was written, what was found wrong, and the least-privilege SQL."""

from __future__ import annotations

from pathlib import Path

import typer

from headrace.sidecar.cli import output
from headrace.sidecar.setup.scaffold import init


def run_init(
    *,
    url: str,
    folder: Path,
    name: str,
    topic_prefix: str,
    tables: list[str] | None,
    kafka: str,
    connect: str | None,
    register: bool,
    force: bool,
    workers: int,
    allow_keyless: bool,
    connector_password: str | None,
    show_password: bool,
    as_json: bool,
) -> None:
    """Reflect, write, register if asked, and print the report."""
    report = init(
        url, source_name=name, topic_prefix=topic_prefix, folder=folder, tables=tables, connect_url=connect,
        register=register, kafka_bootstrap=kafka, force=force, create_heartbeat=register, workers=workers,
        allow_keyless=allow_keyless, password=connector_password, show_password=show_password,
    )  # fmt: skip
    out = [
        output.table(
            f"{len(report.tables)} tables",
            ("table", "key", "columns"),
            [(t.name, ", ".join(t.key or ()) or "(none)", len(t.columns)) for t in report.tables],
        ),
        output.table("Written", ("file",), [(f,) for f in report.files]),
    ]
    if report.warnings:
        rows = [(w.table or "", w.what, w.remedy) for w in report.warnings]
        out.append(output.table("Warnings", ("table", "what", "remedy"), rows))
    if report.findings:
        wrong = [(f.setting, f.value, f.wanted, f.why) for f in report.findings]
        out.append(output.table("Connector settings to change", ("setting", "is", "should be", "why"), wrong))
    if report.registered:
        out.append(output.table("Registered with Kafka Connect", ("connector",), [(report.registered,)]))
    if report.secret is not None:
        out.append(
            output.table("The password, which Connect's REST answers do not show", ("file",), [(report.secret,)])
        )
    output.emit(report.as_json(), as_json=as_json, tables=out)
    if not as_json:
        typer.echo(f"Least-privilege SQL for the source, to be run as the tables' owner:\n\n{report.sql}")
        typer.echo(_next(folder, registered=bool(report.registered)))


def _next(folder: Path, *, registered: bool) -> str:
    """What is still to be done until the views are kept."""
    at = "" if folder == Path() else f" --config {folder / 'headrace.yaml'}"
    connector = (
        ""
        if registered
        else "  register connectors/ with Kafka Connect: `headrace init … --register --force` does it\n"
    )
    return (
        f"Next:\n{connector}  export WAREHOUSE_URL=…   # the Postgres that the views are written to\n"
        f"  headrace validate{at}\n  headrace run{at}"
    )
