"""`headrace status`: on one screen what a running sidecar says of itself, or why the last one stopped.

Always: it is asked as everything else is, over the socket in the state folder, else over HTTP. Green is well, yellow is
late or waits, red needs somebody. Called by the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from headrace.sidecar.cli import output
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.client import Client, NotRunning
from headrace.sidecar.state.last_exit import last
from headrace.sidecar.telemetry.http_server import HttpError
from headrace.views.yaml_models import nearest

PATIENCE = 10.0
"""Seconds within which a sidecar must say how it is."""
MOST_VIEWS = 12
"""So many views fit a screen; those that are not well come first."""
COLOURS = {
    "fresh": "green", "attached": "green", "up": "green", "late": "yellow", "starting": "yellow", "catching up": "yellow",
    "unknown": "dim", "stale": "bold red", "unproven": "bold red", "in error": "bold red",
    "detached": "bold red", "down": "bold red",
}  # fmt: skip


def run_status(
    settings: Settings | None, url: str | None, *, view: str | None = None, verbose: bool = False, as_json: bool
) -> None:
    """Print what the sidecar of the configuration, or the one at `url`, says. Raises HttpError where none answers, or knows no
    such view."""
    client = Client(settings, url, PATIENCE)
    try:
        body = client.status()
    except NotRunning as away:
        ended = None if settings is None else last(settings.state)
        why, hint, when = away.what, away.hint, None
        if ended is not None:
            why, hint, when = f"no sidecar answers: it stopped: {ended['text']}", ended["hint"] or hint, ended["at"]
        raise HttpError(why, http=client.where, stopped=when, hint=hint) from away
    if view is not None:
        body = of_view(body, view)
    tables = () if as_json else view_tables(body) if view is not None else status_tables(body, verbose=verbose)
    output.emit(body, as_json=as_json, tables=tables)


def of_view(status: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What the status has of one view. Raises HttpError where it has none of this name."""
    found = next((v for v in status["views"] if v["name"] == name), None)
    if found is None:
        raise HttpError("no view with a sink has this name", view=name,
                        hint=nearest(name, [v["name"] for v in status["views"]]))  # fmt: skip
    arrangements = [a for a in status["arrangements"] if name in a["views"]]
    return {"name": status["name"], "view": found, "arrangements": arrangements}


def view_tables(body: Mapping[str, Any]) -> list[Table]:
    """The tables of `headrace status --view NAME`."""
    view = body["view"]
    limits = view.get("limits") or {}
    told = [("state", _state(view)), ("rows", view.get("rows")), ("epoch", view["epoch"]),
            ("key", ", ".join(view.get("key") or ()) or "none"),
            ("limits", ", ".join(f"{k} {v:g} s" for k, v in limits.items() if v is not None) or "none"),
            ("error", Text(view.get("error") or "", "red"))]  # fmt: skip
    sinks = [
        (f["sink"], _coloured(f["state"]), output.age_text(f["staleness_seconds"])) for f in view.get("freshness", ())
    ]
    held = [(a["name"], a["rows"], output.bytes_text(a["bytes"]), a["readers"]) for a in body["arrangements"]]
    return [
        output.table(f"View {view['name']} of {body['name']}", ("what", "is"), told),
        output.table("In its sinks", ("sink", "state", "age"), sinks),
        output.table("Arrangements that it reads", ("arrangement", "updates", "memory", "readers"), held),
    ]


def status_tables(status: Mapping[str, Any], *, verbose: bool = False) -> list[Table]:
    """The tables of `headrace status`: what needs somebody, views, sources, sinks; `verbose`: all the rest too."""
    ready = "ready" if status.get("ready", True) else "NOT READY"
    title = f"{status['name']}: {ready}"
    if not status.get("waits"):
        title += f", epoch {status['epoch']}, generation {status['generation']}"
    wrong = list(problems(status))
    tables = [output.table(f"{title}: this needs somebody", ("what", "which", "why"), wrong)] if wrong else []
    tables += [_views(status, f"{title}" if not wrong else "Views", verbose=verbose), _sources(status), _sinks(status)]
    tables += _each_transaction(status)
    return [*tables, *_details(status)] if verbose else tables


def problems(status: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """What is not well: of which kind, its name, and why."""
    waits = status.get("waits")
    if waits:
        yield _coloured("down"), "workers", waits["why"]
    for source in status["sources"]:
        if source.get("down_because"):
            yield _coloured("down"), f"source {source['name']}", source["down_because"]
        if source.get("clock_ahead_seconds", 0) > 1:
            yield Text("clock ahead", "yellow"), f"source {source['name']}", f"{source['clock_ahead_seconds']} s"
        for table in source.get("stopped", ()):
            yield Text("suspended", "bold red"), f"table {table['table']}", table["error"]
        for column in source.get("lost", ()):
            what = "pauses its views" if column["pauses"] else "is NULL"
            yield Text(what, "yellow"), f"column {column['table']}.{column['column']}", column["why"]
    checkpoint = status.get("checkpoint") or {}
    if checkpoint.get("error"):
        yield Text("no checkpoint", "bold red"), f"state {checkpoint['where']}", checkpoint["error"]
    for sink in status["sinks"]:
        if sink.get("error"):
            yield _coloured("detached"), f"sink {sink['name']}", sink["error"]
    for view in status["views"]:
        if view.get("error"):
            yield _coloured("in error"), f"view {view['name']}", view["error"]
        elif view.get("state") == "unproven":
            yield _coloured("unproven"), f"view {view['name']}", view.get("why") or ""
        elif view.get("late"):
            yield _coloured(view["state"]), f"view {view['name']}", _recursion(view)
        elif view.get("state") in ("late", "stale"):
            yield _coloured(view["state"]), f"view {view['name']}", f"{output.age_text(view['staleness_seconds'])} old"
    for test in status.get("data_tests", ()):
        if test["failing"] or test["error"]:
            yield Text("fails", "yellow"), f"data test {test['test']}", test["error"] or f"{test['failing']} rows"


def _recursion(view: Mapping[str, Any]) -> str:
    """How far the recursion of a view has come that is evaluated between steps."""
    late = view["late"]
    old = output.age_text(view["staleness_seconds"]) if view.get("staleness_seconds") is not None else "never written"
    return (
        f"{old} old: a recursion is evaluated between steps since epoch {late['since_epoch']}, "
        f"now in round {late['round']} with {late['rows']:,} rows"
    )


def _views(status: Mapping[str, Any], title: str, *, verbose: bool) -> Table:
    views = sorted(status["views"], key=lambda v: (v.get("state") in ("fresh", "unknown"), 0))
    shown = views if verbose else views[:MOST_VIEWS]
    rows: list[Sequence[object]] = [
        (v["name"], _state(v), output.age_text(v.get("staleness_seconds")), v.get("rows"), ", ".join(v["sinks"]))
        for v in shown
    ]
    if len(shown) < len(views):
        rows.append((f"… and {len(views) - len(shown)} more: -v", "", "", "", ""))
    return output.table(title, ("view", "state", "age", "rows", "sinks"), rows)


def _sources(status: Mapping[str, Any]) -> Table:
    rows = [
        (s["name"], s["type"], _coloured("up" if s.get("up", True) else "down"), s["events"], _place(s),
         s["lag"], Text(s.get("waiting") or "", "yellow"))
        for s in status["sources"]
    ]  # fmt: skip
    return output.table("Sources", ("source", "type", "state", "events", "LSN or version", "lag", "waits for"), rows)


def _place(source: Mapping[str, Any]) -> str:
    """Up to where a source is in: its log's LSN, or the version of a dataset."""
    return source.get("lsn") or source.get("version") or ""


def _sinks(status: Mapping[str, Any]) -> Table:
    rows = [(s["name"], _coloured(s.get("state", "")), s["epoch"], s["behind"], output.bytes_text(s.get("backlog_bytes", 0)))
            for s in status["sinks"]]  # fmt: skip
    return output.table("Sinks", ("sink", "state", "epoch", "epochs behind", "waits"), rows)


def _each_transaction(status: Mapping[str, Any]) -> list[Table]:
    """Who makes the steps finer, where anybody does, and what that costs."""
    each = status.get("each_transaction") or {}
    if not each.get("asked_by"):
        return []
    times, otherwise = each["ranges"], each["otherwise"]
    cost = f"{times:,} times in the engine where {otherwise:,} would do, {each['engine_seconds']:,} s of it"
    rows = [(a["who"], output.age_text(a["since_seconds"]) if a["since_seconds"] is not None else "its configuration",
             "it is a contract" if a["lag_seconds"] is None else f"{a['lag_seconds']:g} s")
            for a in each["asked_by"]]  # fmt: skip
    return [output.table(f"Each transaction by itself: {cost}", ("asked by", "since", "ended when behind for"), rows)]


WORKER_COLUMNS = (
    "worker", "executor", "host", "process", "processor seconds", "memory", "attempt", "last heard, s ago",
)  # fmt: skip


LEG_COLUMNS = ("sink", "leg", "p50", "p95", "p99")


def _details(status: Mapping[str, Any]) -> list[Table]:
    held = [(a["name"], a["rows"], output.bytes_text(a["bytes"]), a["readers"], ", ".join(a["views"]))
            for a in status["arrangements"]]  # fmt: skip
    workers = [
        (w["worker"], w["executor"], w["host"], w["pid"], w["cpu_seconds"], output.bytes_text(w["memory"]),
         w["attempt"], w["heard_seconds"])
        for w in status.get("workers", ())
    ]  # fmt: skip
    stopped = [(s["name"], t["table"], f"{t['missing']} events", t["error"])
                for s in status["sources"] for t in s.get("stopped", ())]  # fmt: skip
    tests = [(t["test"], t["failing"], t["error"] or "") for t in status.get("data_tests", ())]
    unread = [(s["name"], u["what"], u["why"]) for s in status["sources"] for u in s.get("unread", ())]
    found: list[tuple[str, tuple[str, ...], Sequence[Sequence[object]]]] = [
        (
            "Arrangements (one copy, however many views read it)",
            ("arrangement", "updates", "memory", "readers", "views"),
            held,
        ),
        ("Workers", WORKER_COLUMNS, workers),
        ("From commit to visible, ms", LEG_COLUMNS, list(_legs(status))),
        ("Tables that are suspended", ("source", "table", "still to be read", "why"), stopped),
        ("Data tests", ("what must hold", "rows that break it", "error"), tests),
        ("In the source and in no view", ("source", "table or column", "why"), unread),
    ]
    return [output.table(title, columns, rows) for title, columns, rows in found if rows]


def _legs(status: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """Of each sink what the last epochs took at each leg of their way, queueing and service apart."""
    for sink, stages in status.get("stages_ms", {}).items():
        legs = {leg: times for leg, times in stages.items() if leg != "count"}
        for leg, times in legs.items() if stages["count"]["epochs"] else ():
            yield sink, leg.replace("_", ", "), *(round(times[q], 1) for q in ("p50", "p95", "p99"))


def _state(view: Mapping[str, Any]) -> Text:
    return _coloured(view.get("state") or ("in error" if view["errors"] else "fresh"))


def _coloured(state: str) -> Text:
    return Text(state, COLOURS.get(state, ""))
