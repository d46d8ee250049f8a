"""`headrace status`: what a running sidecar says of itself, or why the last one stopped.

Always: it is asked as everything else is, over the socket in the state folder, else over HTTP. Called by the command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from sidecar.config import Settings
from sidecar.console import show
from sidecar.health import HttpError
from sidecar.live.client import Away, Client
from sidecar.stopped import last

PATIENCE = 10.0
"""Seconds within which a sidecar must say how it is."""


def run_status(settings: Settings | None, url: str | None, *, as_json: bool) -> None:
    """Print what the sidecar of the configuration, or the one at `url`, says. Raises HttpError where none answers."""
    client = Client(settings, url, PATIENCE)
    try:
        body = client.status()
    except Away as away:
        ended = None if settings is None else last(settings.state)
        why, hint, when = away.what, away.hint, None
        if ended is not None:
            why, hint, when = f"no sidecar answers: it stopped: {ended['text']}", ended["hint"] or hint, ended["at"]
        raise HttpError(why, http=client.where, stopped=when, hint=hint) from away
    show.emit(body, as_json=as_json, tables=[] if as_json else status_tables(body))


def status_tables(status: Mapping[str, Any]) -> list[Table]:
    """The tables of `headrace status`."""
    sources = (
        (s["name"], s["type"], s["events"], show.lsn_text(s.get("lsn")), s["lag"], s.get("waiting") or "")
        for s in status["sources"]
    )
    views = (
        (v["name"], "in error" if v["errors"] else "fresh", v["epoch"], ", ".join(v["sinks"]), v.get("error") or "")
        for v in status["views"]
    )
    arrangements = (
        (a["name"], a["rows"], show.bytes_text(a["bytes"]), a["readers"], ", ".join(a["views"]))
        for a in status["arrangements"]
    )
    sinks = (
        (
            s["name"],
            s.get("state", ""),
            s["epoch"],
            s["behind"],
            show.bytes_text(s.get("backlog_bytes", 0)),
            s.get("error") or "",
        )
        for s in status["sinks"]
    )
    unread = [(s["name"], u["what"], u["why"]) for s in status["sources"] for u in s.get("unread", ())]
    tables = [
        show.table(f"{status['name']}: epoch {status['epoch']}, generation {status['generation']}",
              ("source", "type", "events", "LSN", "lag", "waits for"), sources),
        show.table("Views", ("view", "state", "epoch", "sinks", "error"), views),
        show.table("Arrangements (one copy, however many views read it)",
              ("arrangement", "updates", "memory", "readers", "views"), arrangements),
        show.table("Sinks", ("sink", "state", "epoch", "epochs behind", "waits", "why"), sinks),
    ]  # fmt: skip
    workers = [
        (w["worker"], w["pid"], w["cpu_seconds"], show.bytes_text(w["memory"])) for w in status.get("workers", ())
    ]
    if workers:
        tables.append(show.table("Workers", ("worker", "process", "processor seconds", "memory"), workers))
    stopped = [
        (s["name"], t["table"], f"{t['missing']} events", t["error"])
        for s in status["sources"]
        for t in s.get("stopped", ())
    ]
    tests = [(t["test"], t["failing"], t["error"] or "") for t in status.get("data_tests", ())]
    if tests:
        tables.append(show.table("Data tests", ("what must hold", "rows that break it", "error"), tests))
    if stopped:
        tables.append(show.table("Tables that stand still", ("source", "table", "still to be read", "why"), stopped))
    lost = [
        (s["name"], f"{c['table']}.{c['column']}", "pauses its views" if c["pauses"] else "is NULL", c["why"])
        for s in status["sources"]
        for c in s.get("lost", ())
    ]
    if lost:
        tables.append(show.table("Columns that changed", ("source", "column", "state", "why"), lost))
    if unread:
        tables.append(show.table("In the source and in no view", ("source", "table or column", "why"), unread))
    return tables
