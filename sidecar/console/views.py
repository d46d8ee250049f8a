"""`headrace plan`, `apply`, `query` and `tail`: what is asked of the running sidecar, and what is printed of its answers.

Always: `--json` prints the sidecar's own objects, one a line; an error is the sidecar's, with its exit code. The engine is
loaded only where no sidecar runs: whoever asks one is not to wait for that.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from sidecar.config import Settings
from sidecar.console import show
from sidecar.live.client import Away, Client


def run_plan(settings: Settings, url: str | None, *, drop: bool, as_json: bool) -> None:
    """Ask the running sidecar; where none runs, read its state folder. Raises HeadraceError."""
    try:
        body: Mapping[str, Any] = {**Client(settings, url).ask("/plan", {"drop": drop}), "running": True}
    except Away:
        if url is not None:
            raise
        from sidecar.live.offline import plan_offline
        from sidecar.wiring import understand

        body = {**plan_offline(understand(settings), drop=drop).json(), "running": False}
    show.emit(body, as_json=as_json, tables=[] if as_json else plan_tables(body))
    if not as_json:
        sys.stdout.write(_summary(body))


def plan_tables(body: Mapping[str, Any]) -> list[Any]:
    """The tables of a plan."""
    fates = [f for f in body["views"] if f["action"] != "unchanged"]
    where = "" if body.get("running", True) else " (no sidecar runs: against its state folder)"
    rows = [
        (f["view"], f["action"], f["why"], len(f["shares"]), len(f["adds"]),
         show.bytes_text(sum(a["bytes"] for a in f["adds"])), ", ".join(f["loses"]))
        for f in fates
    ]  # fmt: skip
    columns = ("view", "what", "why", "shared", "new", "at most", "dropped from")
    return [show.table(f"Views{where}", columns, rows)] if rows else []


def _summary(body: Mapping[str, Any]) -> str:
    if not body["changes"]:
        return "nothing to do: the views in force are those of the folder\n"
    tables = f"; tables let go: {', '.join(body['tables_dropped'])}" if body["tables_dropped"] else ""
    size = show.bytes_text(body["bytes_expected"])
    new, shared = body["arrangements_new"], body["arrangements_shared"]
    return f"{new} arrangements new, at most {size}; {shared} shared{tables}\n"


def run_apply(settings: Settings, url: str | None, *, drop: bool, cancel: bool, as_json: bool) -> None:
    """Put the folder in force, showing how far it is; or end what is under way. Raises HeadraceError."""
    client = Client(settings, url)
    if cancel:
        body = client.ask("/cancel", {})
        show.emit(body, as_json=as_json)
        if not as_json:
            sys.stdout.write("cancelled\n" if body["cancelled"] else "nothing was under way\n")
        return
    lines = client.stream("POST", "/apply", {"drop": drop})
    if as_json:
        for line in lines:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        return
    _print_apply(lines)


def _print_apply(lines: Iterable[Mapping[str, Any]]) -> None:
    bar = Progress(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"),
                   console=Console(stderr=True), transient=True)  # fmt: skip
    with bar:
        task = bar.add_task("building", total=None, told="")
        for line in lines:
            if line["event"] == "progress":
                left = line["seconds_left"]
                told = f"{line['rows']:,} of {line['of']:,} rows" + ("" if left is None else f", {left} s left")
                bar.update(task, description=line["stage"], completed=line["rows"], total=line["of"] or None, told=told)
            elif line["event"] == "applied":
                bar.stop()
                for table in plan_tables(line):
                    Console(highlight=False).print(table)
                seconds = line["seconds"].get("total")
                took = "" if seconds is None else f" in {seconds:.3f} s"
                sys.stdout.write(f"in force since epoch {line['epoch']}{took}\n" if line["changes"] else _summary(line))


def run_query(settings: Settings, url: str | None, sql: str, *, as_csv: bool, as_json: bool) -> None:
    """Print one answer: a table, CSV, or one JSON object. Raises HeadraceError."""
    lines = Client(settings, url).stream("POST", "/query", {"sql": sql, "json": as_json})
    head = next(lines)
    rows = (row for line in lines for row in line["part"])
    names = [c["name"] for c in head["columns"]]
    if as_json:
        sys.stdout.write(json.dumps({**head, "rows": list(rows)}) + "\n")
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    else:
        cells = (["NULL" if v is None else v for v in row] for row in rows)
        Console(highlight=False).print(show.table(f"{head['rows']} rows at epoch {head['epoch']}", names, cells))


def run_tail(settings: Settings, url: str | None, view: str, start: int | None, *, as_json: bool) -> None:
    """Print a view's changes as they come, one a line. Raises HeadraceError; with Ctrl-C it says how to go on."""
    asked = {"view": view, "json": "true" if as_json else "false"} | ({} if start is None else {"from": str(start)})
    resume = start
    try:
        for line in Client(settings, url).stream("GET", "/tail", asked):
            resume = line.get("resume", resume)
            if as_json:
                sys.stdout.write(json.dumps(line) + "\n")
            elif (told := _tail_text(line)) is not None:
                sys.stdout.write(told + "\n")
            sys.stdout.flush()
    finally:
        if not as_json and resume is not None:
            sys.stderr.write(f"go on with: headrace tail {view} --from {resume}\n")


def _tail_text(line: Mapping[str, Any]) -> str | None:
    """A line for people; None for one that only programs need."""
    if "row" in line:
        cells = "\t".join("NULL" if v is None else str(v) for v in line["row"])
        return f"{line['epoch']}\t{line['diff']:+d}\t{cells}"
    if "columns" in line:
        return "\t".join(["epoch", "diff", *(c["name"] for c in line["columns"])])
    return f"{line['epoch']}\tin error: {line['in_error']}" if "in_error" in line else None
