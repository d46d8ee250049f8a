"""`headrace plan`, `apply`, `query`, `tail` and `resync`: asks the running sidecar and prints its answers.

Always: `--json` prints the sidecar's own objects, one a line; an error is the sidecar's, with its exit code. The engine is
loaded only where no sidecar runs: whoever asks one is not to wait for that.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from headrace.sidecar.cli import output
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.client import Client, NotRunning
from headrace.views.yaml_reader import ConfigError


def run_plan(settings: Settings, url: str | None, *, drop: bool, as_json: bool) -> None:
    """Ask the running sidecar; where none runs, read its state folder. Raises HeadraceError."""
    try:
        body: Mapping[str, Any] = {**Client(settings, url).ask("/plan", {"drop": drop}), "running": True}
    except NotRunning:
        if url is not None:
            raise
        from headrace.sidecar.control.offline_plan import plan_offline
        from headrace.sidecar.wiring.project import read_project

        body = {**plan_offline(read_project(settings), drop=drop).json(), "running": False}
    output.emit(body, as_json=as_json, tables=[] if as_json else plan_tables(body))
    if not as_json:
        sys.stdout.write(_summary(body))


def plan_tables(body: Mapping[str, Any]) -> list[Any]:
    """The tables of a plan."""
    fates = [f for f in body["views"] if f["action"] != "unchanged"]
    where = "" if body.get("running", True) else " (no sidecar runs: against its state folder)"
    rows = [
        (f["view"], f["action"], f["why"], len(f["shares"]), len(f["adds"]),
         output.bytes_text(sum(a["bytes"] for a in f["adds"])), ", ".join(f["loses"]))
        for f in fates
    ]  # fmt: skip
    columns = ("view", "what", "why", "shared", "new", "at most", "dropped from")
    return [output.table(f"Views{where}", columns, rows)] if rows else []


def _summary(body: Mapping[str, Any]) -> str:
    if not body["changes"]:
        return "nothing to do: the views in force are those of the folder\n"
    tables = f"; tables let go: {', '.join(body['tables_dropped'])}" if body["tables_dropped"] else ""
    by_load = body["tables_to_load"]
    if read := [table for table in body["tables_added"] if table not in by_load]:
        tables += f"; tables to be read from their source: {', '.join(read)}"
    if by_load:
        tables += f"; tables to be filled by `headrace load`, which also applies: {', '.join(by_load)}"
    for change in body["tables_changed"]:
        tables += f"; {_change_text(change)}"
    size = output.bytes_text(body["bytes_expected"])
    new, shared = body["arrangements_new"], body["arrangements_shared"]
    return f"{new} arrangements new, at most {size}; {shared} shared{tables}\n"


def run_apply(settings: Settings, url: str | None, *, drop: bool, cancel: bool, as_json: bool) -> None:
    """Put the folder in force, showing how far it is; or end what is under way. Raises HeadraceError."""
    client = Client(settings, url)
    if cancel:
        body = client.ask("/cancel", {})
        output.emit(body, as_json=as_json)
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
                for one in line.get("tables", ()):
                    sys.stdout.write(_table_text(one))


_CHANGES = {"added": "new", "dropped": "dropped", "retyped": "wider", "partitions": "new partitions"}


def _change_text(change: Mapping[str, Any]) -> str:
    """What becomes of a table that is declared otherwise."""
    parts = [f"{what} {', '.join(change[key])}" for key, what in _CHANGES.items() if change[key]]
    parts += [f"{old} renamed to {new}" for new, old in change["renamed"].items()]
    return f"{change['table']}: {'; '.join(parts) or 'declared otherwise'}"


def _table_text(one: Mapping[str, Any]) -> str:
    """What became of a table that is read from now on."""
    if not one["why"] and one.get("kept"):
        return f"{one['table']} is being read from its source; views that name its new columns wait until it is\n"
    if not one["why"]:
        return f"{one['table']} is being read from its source; its views are unproven until it is\n"
    return (
        f"{one['table']} is unproven: its connector does not capture it: {one['why']}; add it to table.include.list and to "
        f"the publication, then type: headrace resync {one['table']}\n"
    )


def run_resync(
    settings: Settings, url: str | None, table: str, source_url: str | None, timeout: float, *, as_json: bool
) -> None:
    """Have the running sidecar compare a table with its source. Raises HeadraceError."""
    found = Client(settings, url).ask("/resync", {"table": table, "from": source_url}, timeout)
    row = [found[k] for k in ("table", "rows", "added", "changed", "removed", "epoch")]
    columns = ("table", "rows in the source", "added", "changed", "removed", "epoch")
    title = f"As of LSN {found['lsn']}"
    output.emit(found, as_json=as_json, tables=[output.table(title, columns, [row])])


def run_rescale(settings: Settings, url: str | None, workers: int, *, as_json: bool) -> None:
    """Have the running sidecar go on with another count of workers. Raises HeadraceError."""
    body = Client(settings, url).ask("/rescale", {"workers": workers})
    output.emit(body, as_json=as_json)
    if not as_json and body["before"] == body["workers"]:
        sys.stdout.write(f"nothing to do: the count of workers is {workers}\n")
    elif not as_json:
        told = f"{body['workers']} workers instead of {body['before']} since epoch {body['epoch']}"
        sys.stdout.write(f"{told}; it paused for {body['pause_seconds']} s\nset engine.workers for the next start\n")


_QUESTION = re.compile(r"[a-z_][a-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")


def run_query(
    settings: Settings, url: str | None, sql: str, given: Sequence[str], *, as_csv: bool, as_json: bool
) -> None:  # fmt: skip
    """Print one answer: a table, CSV, or one JSON object. `given`: of a question, its values as `--column value`. Raises
    HeadraceError.
    """
    body: dict[str, object] = {"sql": sql, "json": as_json}
    if _QUESTION.fullmatch(sql):
        body = {"question": sql, "values": _values(given), "json": as_json}
    elif given:
        what = "a SELECT takes no values"
        raise ConfigError(what, field=given[0], hint="name a question of a program: PROGRAM.RELATION --column value")
    lines = Client(settings, url).stream("POST", "/query", body)
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
        Console(highlight=False).print(output.table(f"{head['rows']} rows at epoch {head['epoch']}", names, cells))


def _values(given: Sequence[str]) -> dict[str, str]:
    """`--column value` or `--column=value`, by column. Raises ConfigError."""
    found: dict[str, str] = {}
    rest = list(given)
    while rest:
        name, sign, value = rest.pop(0).partition("=")
        if not name.startswith("--") or len(name) < 3 or (not sign and not rest):
            raise ConfigError("a question's values are given as --column value", field=name, hint="check the command")
        found[name[2:]] = value if sign else rest.pop(0)
    return found


def run_explain_row(
    settings: Settings, url: str | None, view: str, key: Sequence[str], *, as_json: bool
) -> None:  # fmt: skip
    """Print the derivation of a row as a tree; for a row that is not there, how far each rule gets. Raises HeadraceError."""
    found = Client(settings, url).ask("/row", {"view": view, "key": list(key)})
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    lines = [line for proof in found["proofs"] for line in proof_lines(proof, "", "")]
    if not found["proofs"]:
        lines.append(f"{view} has no such row at epoch {found['epoch']}")
    for rule in found.get("missing", ()):
        lines.append(f"  line {rule['line']}: {rule['rule']}")
        lines.append(f"    no row is left at {rule['fails_at']} of the {rule['rows_before']} before it")
    sys.stdout.write("\n".join(lines) + "\n")


def proof_lines(proof: Mapping[str, Any], first: str, rest: str) -> list[str]:
    """A proof tree, a line a row; `first` and `rest`: what stands before its first line, and before the others."""
    row = ", ".join("NULL" if v is None else str(v) for v in proof["row"])
    why = proof["source"] if "source" in proof else f"line {proof['line']}: {proof['rule']}"
    lines = [f"{first}{proof['relation']}({row})   {why}"]
    body = proof.get("body", ())
    for place, below in enumerate(body):
        last = place == len(body) - 1
        lines += proof_lines(below, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
    return lines


def run_tail(
    settings: Settings, url: str | None, view: str, start: int | None, *, limit: int | None, until: int | None,
    as_json: bool, each: bool = False, lag: float | None = None,
) -> None:  # fmt: skip
    """Print a view's changes as they come, one a line. Raises HeadraceError; at its end it says how to go on.

    `each`: every transaction by itself; it is ended where it would hold the intake up for more than `lag` seconds.

    It ends by itself at the first `resume` after `limit` rows, or at the first one of the epoch `until` or later: what was
    printed is then complete up to the epoch that is printed.
    """
    asked = {"view": view, "json": "true" if as_json else "false"} | ({} if start is None else {"from": str(start)})
    asked |= {"each": "true"} if each else {}
    asked |= {} if lag is None else {"lag": f"{lag:g}"}
    resume, rows = start, 0
    try:
        for line in Client(settings, url).stream("GET", "/tail", asked):
            resume = line.get("resume", resume)
            rows += "row" in line
            if as_json:
                sys.stdout.write(json.dumps(line) + "\n")
            elif (told := _tail_text(line)) is not None:
                sys.stdout.write(told + "\n")
            sys.stdout.flush()
            if "resume" in line and _enough(line["resume"], rows, limit, until):
                break
    finally:
        if not as_json and resume is not None:
            sys.stderr.write(f"go on with: headrace tail {view} --from {resume}\n")


def _enough(epoch: int, rows: int, limit: int | None, until: int | None) -> bool:
    return (limit is not None and rows >= limit) or (until is not None and epoch >= until)


def _tail_text(line: Mapping[str, Any]) -> str | None:
    """A line for people; None for one that only programs need."""
    if "row" in line:
        cells = "\t".join("NULL" if v is None else str(v) for v in line["row"])
        return f"{line['epoch']}\t{line['diff']:+d}\t{cells}"
    if "columns" in line:
        return "\t".join(["epoch", "diff", *(c["name"] for c in line["columns"])])
    return f"{line['epoch']}\tin error: {line['in_error']}" if "in_error" in line else None
