"""The command as its users meet it: what it prints, as tables and as JSON, and the code it leaves with."""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner, Result

from headrace import connectors, engine, sidecar, views
from headrace.engine.errors import HeadraceError
from headrace.sidecar.cli import output
from headrace.sidecar.cli.app import app
from headrace.sidecar.cli.errors import EXIT_CODES
from headrace.sidecar.config.config import load_for_replay
from headrace.sidecar.intake.source_intake import UndecodableError
from headrace.sidecar.state import last_exit
from tests.sidecar.support import recordings

FINAL = [
    {"view": "by_city", "row": {"city": "Bern", "orders": 1, "amount": "0.25"}, "count": 1},
    {"view": "by_city", "row": {"city": "Basel", "orders": 1, "amount": "1.00"}, "count": 1},
]
DIVISION = """\
version: 1
views:
  - name: shares
    sql: select id, amount / (id - 3) as share from orders
"""


def headrace(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def in_order(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(lines, key=lambda line: json.dumps(line, sort_keys=True))


def test_version() -> None:
    told = headrace("--version")
    assert told.exit_code == 0
    assert re.fullmatch(r"headrace \d+\.\d+\.\d+\n", told.stdout)


def test_validate_names_each_view_with_key_tables_and_columns(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path)
    told = headrace("validate", "-c", path, "--json")
    assert told.exit_code == 0, told.output
    body = json.loads(told.stdout)
    assert body["ok"] is True
    (view,) = body["views"]
    assert view["name"] == "by_city"
    assert view["key"] == ["city"], "one group may be of NULL"
    assert sorted(view["tables"]) == ["public.customers", "public.orders"]
    assert [(c["name"], c["data_type"]) for c in view["columns"]] == [
        ("city", "text"), ("orders", "bigint"), ("amount", "numeric")]  # fmt: skip
    assert view["plan"] is None

    table = headrace("validate", "-c", path)
    assert table.exit_code == 0
    assert "1 view" in table.stdout
    assert "by_city" in table.stdout


def test_validate_tells_a_key_that_follows_from_the_sql(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path, views=DIVISION)
    assert json.loads(headrace("validate", "-c", path, "--json").stdout)["views"][0]["key"] == ["id"]


def test_validate_explains_the_plan(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path)
    plan = json.loads(headrace("validate", "-c", path, "--explain", "--json").stdout)["views"][0]["plan"]
    assert "join" in str(plan).lower()
    told = headrace("validate", "-c", path, "--explain").stdout
    assert str(plan).splitlines()[0] in told


def test_explain_shows_one_view_in_every_way(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path)
    drawn = tmp_path / "by_city.svg"
    body = json.loads(headrace("explain", "by_city", "-c", path, "--svg", drawn, "--json").stdout)
    assert body["view"] == "by_city"
    assert body["held"] is None, "no sidecar runs"
    assert {a["name"].partition("-")[0] for a in body["expected"]} >= {"public.customers", "public.orders"}
    assert all(a["bytes"] > 0 for a in body["expected"])
    assert {name: c["look_ups"] for name, c in body["costs"].items()} == {"public.customers": 2, "public.orders": 2}
    assert drawn.read_text().startswith("<svg")
    told = headrace("explain", "by_city", "-c", path, "--why").stdout
    assert "One changed row of" in told
    assert "rule order_joins: joins get keys and an order" in told
    missing = headrace("explain", "by_cities", "-c", path)
    assert missing.exit_code != 0
    assert "did you mean by_city?" in missing.output


def test_validate_warns_of_what_a_view_costs(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path, views=recordings.VIEW.replace("c.id = o.customer_id", "c.id < o.customer_id"))
    (warning,) = json.loads(headrace("validate", "-c", path, "--json").stdout)["views"][0]["warnings"]
    assert "line 7" in warning
    assert f"warning: view by_city: {warning}" in headrace("validate", "-c", path).stdout


def test_validate_where_only_messages_tell_the_columns(tmp_path: Path) -> None:
    body = json.loads(headrace("validate", "-c", recordings.shop(tmp_path, schemas=True), "--json").stdout)
    assert body["unknown_tables"] == ["public.customers", "public.orders"]


def test_a_view_that_cannot_be_understood_is_told_with_its_place(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path, views=recordings.VIEW.replace("c.city, count", "c.town, count"))
    told = headrace("validate", "-c", path, "--json")
    assert told.exit_code == 4
    error = json.loads(told.stdout)["error"]
    assert error["code"] == "view"
    assert "town" in error["what"]
    assert error["where"]["view"] == "by_city"
    assert Path(error["where"]["file"]).name == "shop.yaml"
    assert (error["where"]["line"], error["where"]["column"]) == (5, 14)
    shown = headrace("validate", "-c", path)
    assert shown.exit_code == 4
    assert re.search(r"shop\.yaml:5:14: error: .*town", shown.stderr)
    line, caret = shown.stderr.splitlines()[1:3]
    assert line[caret.index("^") :].startswith("c.town")
    assert "Traceback" not in shown.output


def test_every_mistake_of_a_folder_is_told_at_once_in_order_of_files_and_lines(tmp_path: Path) -> None:
    """Of files that cannot be read and of views that can; views that read a wrong one are not told as wrong."""
    path = recordings.shop(tmp_path, views=recordings.VIEW.replace("c.city, count", "c.town, count"))
    folder = path.parent / "views"
    (folder / "other.yaml").write_text(
        "version: 1\nviews:\n"
        "  - name: unread\n    sqll: select 1\n"
        "  - name: more\n    keey: [x]\n    sql: select 1 as a\n"
    )
    (folder / "readers.yaml").write_text(
        'version: 1\nviews:\n  - {name: a, sql: "select id from unread"}\n'
        '  - {name: b, sql: "select city from by_city"}\n  - {name: c, sql: "select i from ordres"}\n'
    )
    (folder / "unfinished.yaml").write_text("version: 1\nviews: [\n")
    told = headrace("validate", "-c", path, "--json")
    assert told.exit_code == 3, "the kind of the first"
    body = json.loads(told.stdout)
    found = [
        (Path(e["where"]["file"]).name, e["where"]["line"], e["where"]["column"], e["code"])
        for e in (body["error"], *body["others"])
    ]
    assert found == [
        ("other.yaml", 4, 5, "config"),
        ("other.yaml", 6, 5, "config"),
        ("readers.yaml", 5, 35, "view"),
        ("shop.yaml", 5, 14, "view"),
        ("unfinished.yaml", 3, 1, "config"),
    ]
    shown = headrace("validate", "-c", path)
    places = re.findall(r"^\S+/views/(\S+): error: ", shown.stderr, re.MULTILINE)
    assert places == [f"{name}:{line}:{column}" for name, line, column, _ in found]
    assert len(re.findall(r"^ +\| +\^$", shown.stderr, re.MULTILINE)) >= 4


def test_a_line_with_a_secret_is_not_shown(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path)
    text = json.dumps(json.loads(path.read_text()), indent=1)
    path.write_text(text.replace('"version": 1', '"version": 1,\n "passwrd": 1, "sasl.password": "hush"', 1))
    told = headrace("validate", "-c", path)
    assert told.exit_code == 3
    assert "passwrd" in told.stderr
    assert "hush" not in told.output + told.stderr


def test_a_wrong_configuration_is_told_with_every_mistake(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path, stat="./x", http="nowhere")
    told = headrace("validate", "-c", path, "--json")
    assert told.exit_code == 3
    body = json.loads(told.stdout)
    every = [body["error"], *body["others"]]
    assert {e["code"] for e in every} == {"config"}
    assert {e["where"]["field"] for e in every} == {"stat", "http"}
    assert any("state" in e["hint"] for e in every)


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    told = headrace("validate", "-c", tmp_path / "none.yaml")
    assert told.exit_code == 3
    assert "none.yaml" in told.stderr


def test_run_refuses_a_configuration_without_sinks(tmp_path: Path) -> None:
    told = headrace("run", "-c", recordings.shop(tmp_path), "--json")
    assert told.exit_code == 3
    assert "sink" in json.loads(told.stdout)["error"]["what"]


@pytest.mark.parametrize("kind", ["config", "views"])
def test_schemas_are_json_schemas(kind: str) -> None:
    body = json.loads(headrace("schema", kind).stdout)
    assert body["type"] == "object"
    assert "version" in body["properties"]


@pytest.mark.parametrize("arguments", [("schema", "else"), ("replay", "x", "--output", "else"), ("unknown",)])
def test_a_wrong_command_line(arguments: tuple[str, ...]) -> None:
    assert headrace(*arguments).exit_code == 2


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("name", ["small.jsonl", "small.jsonl.gz"])
def test_replay_gives_each_view_at_the_end(tmp_path: Path, schemas: bool, name: str) -> None:
    path = recordings.shop(tmp_path, schemas=schemas)
    recording = recordings.small(schemas=schemas).write(tmp_path / name)
    told = headrace("replay", recording, "-c", path, "--json")
    assert told.exit_code == 0, told.output
    assert in_order(json_lines(told.stdout)) == FINAL


def test_replay_gives_the_changes_epoch_by_epoch(tmp_path: Path) -> None:
    recording = recordings.small().write(tmp_path / "small.jsonl")
    told = headrace("replay", recording, "-c", recordings.shop(tmp_path), "--output", "changes", "--json")
    assert told.exit_code == 0, told.output
    lines = json_lines(told.stdout)
    assert [line["epoch"] for line in lines] == sorted(line["epoch"] for line in lines)

    def change(epoch: int, city: str | None, orders: int, amount: str, diff: int) -> dict[str, Any]:
        return {
            "view": "by_city",
            "epoch": epoch,
            "row": {"city": city, "orders": orders, "amount": amount},
            "diff": diff,
        }

    assert in_order(lines) == in_order([
        change(1, "Bern", 1, "10.50", 1), change(1, None, 1, "1.00", 1),
        change(2, "Bern", 1, "10.50", -1), change(2, "Bern", 2, "10.75", 1),
        change(3, "Bern", 2, "10.75", -1), change(3, "Bern", 1, "0.25", 1),
        change(3, None, 1, "1.00", -1), change(3, "Basel", 1, "1.00", 1),
    ])  # fmt: skip


def test_replay_as_tables(tmp_path: Path) -> None:
    recording = recordings.small().write(tmp_path / "small.jsonl")
    path = recordings.shop(tmp_path)
    final = headrace("replay", recording, "-c", path).stdout
    assert "by_city: 2 rows" in final
    assert "10.50" not in final
    changes = headrace("replay", recording, "-c", path, "--output", "changes").stdout
    assert "by_city epoch 3" in changes
    assert "-1" in changes
    assert "NULL" in changes


def test_tables_show_values_as_they_are() -> None:
    told = print_of(output.table("[b]title", ("[i]name", "n"), [("[red]x[/]", 1), ("a[/nothing]", 2), (None, 3)]))
    for text in ("[b]title", "[i]name", "[red]x[/]", "a[/nothing]"):
        assert text in told


def print_of(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(table)
    return out.getvalue()


def test_replay_of_several_recordings_is_one_history(tmp_path: Path) -> None:
    lines = recordings.small().lines
    files = []
    for number, part in enumerate((lines[:5], lines[5:])):
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text("".join(line + "\n" for line in part))
    told = headrace("replay", *files, "-c", recordings.shop(tmp_path), "--json")
    assert in_order(json_lines(told.stdout)) == FINAL


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    recording = recordings.small().write(tmp_path / "bad.jsonl")
    with recording.open("a") as file:
        file.write("{nonsense\n")
    count = len(recordings.small().lines)
    told = headrace("replay", recording, "-c", recordings.shop(tmp_path), "--json")
    assert told.exit_code == 8
    error = json_lines(told.stdout)[-1]["error"]
    assert error["code"] == "recording"
    assert error["where"] == {"file": str(recording), "line": count + 1}


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    told = headrace("replay", tmp_path / "none.jsonl", "-c", recordings.shop(tmp_path))
    assert told.exit_code == 8
    assert "none.jsonl" in told.stderr


def test_a_recording_that_ends_in_the_middle(tmp_path: Path) -> None:
    recording = recordings.small().write(tmp_path / "cut.jsonl.gz")
    recording.write_bytes(recording.read_bytes()[:-20])
    told = headrace("replay", recording, "-c", recordings.shop(tmp_path), "--json")
    assert told.exit_code == 8
    assert json_lines(told.stdout)[-1]["error"]["where"]["file"] == str(recording)


def test_a_record_that_cannot_be_decoded_stops_the_replay(tmp_path: Path) -> None:
    made = recordings.small()
    made.raw("orders", '{"op": "c", "after": {"id": "seven"}, "source": {"schema": "public", "table": "orders"}}')
    told = headrace("replay", made.write(tmp_path / "bad.jsonl"), "-c", recordings.shop(tmp_path), "--json")
    assert told.exit_code == 8
    error = json_lines(told.stdout)[-1]["error"]
    assert error["code"] == "undecodable"
    assert error["where"]["topic"] == "shop.public.orders"
    assert error["where"]["record"] == len(made.lines)


def test_a_view_in_error_at_the_end_is_told_after_the_rows(tmp_path: Path) -> None:
    path = recordings.shop(tmp_path, views=DIVISION)
    recording = recordings.small().write(tmp_path / "small.jsonl")
    told = headrace("replay", recording, "-c", path, "--json")
    assert told.exit_code == 4
    *rows, last = json_lines(told.stdout)
    assert [r["row"]["id"] for r in rows] == [2]
    assert last["error"]["what"] == "division by zero"
    assert last["error"]["where"]["view"] == "shares"


def test_the_command_itself_runs(tmp_path: Path) -> None:
    recording = recordings.small().write(tmp_path / "small.jsonl")
    command = [
        sys.executable,
        "-m",
        "headrace.sidecar.cli.app",
        "replay",
        str(recording),
        "-c",
        str(recordings.shop(tmp_path)),
        "--json",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert in_order(json_lines(told.stdout)) == FINAL
    assert told.stderr == ""


def test_status_where_nobody_listens(tmp_path: Path) -> None:
    for arguments in (("-c", recordings.shop(tmp_path)), ("--url", "http://127.0.0.1:1")):
        told = headrace("status", "--json", *arguments)
        assert told.exit_code == 5
        error = json.loads(told.stdout)["error"]
        assert error["code"] == "http"
        assert error["where"]["http"] == "http://127.0.0.1:1"
        assert "headrace run" in error["hint"]


def test_status_says_why_the_last_run_stopped(tmp_path: Path) -> None:
    config = recordings.shop(tmp_path)
    state = load_for_replay(config).state
    state.mkdir(parents=True)
    last_exit.note(state, UndecodableError("not JSON", topic="shop.public.t", partition=0, offset=7, hint="mend it"))
    told = headrace("status", "--json", "-c", config)
    error = json.loads(told.stdout)["error"]
    assert told.exit_code == 5
    for word in ("it stopped", "not JSON", "topic=shop.public.t", "offset=7"):
        assert word in error["what"]
    assert error["hint"] == "mend it"
    assert error["where"]["stopped"].startswith("20")
    last_exit.forget(state)
    assert "it stopped" not in headrace("status", "-c", config).stdout
    (state / last_exit.NAME).write_text("[")
    assert last_exit.last(state) is None
    last_exit.note(tmp_path / "not there", UndecodableError("x"))


def families() -> dict[str, set[str]]:
    """Every kind of error in the code base: code → the classes that carry it."""
    for package in (engine, views, connectors, sidecar):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    importlib.import_module("examples.demo.compare")
    found: dict[str, set[str]] = {}
    waiting: list[type[HeadraceError]] = [HeadraceError]
    while waiting:
        kind = waiting.pop()
        if not kind.__module__.startswith("tests."):
            found.setdefault(kind.code, set()).add(kind.__qualname__)
        waiting += kind.__subclasses__()
    return found


def test_every_kind_of_error_has_an_exit_code_that_the_docs_tell() -> None:
    found = families()
    assert found.keys() == EXIT_CODES.keys()
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    told = {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)}
    assert set(told) == {0, 2, 130} | set(EXIT_CODES.values())
    for code, number in EXIT_CODES.items():
        assert f"`{code}`" in told[number], f"docs/cli.md: {code} leaves with {number}"


def test_a_missing_configuration_says_what_writes_one(tmp_path: Path) -> None:
    told = headrace("run", "--config", tmp_path / "headrace.yaml", "--json")
    assert told.exit_code == 3
    error = json.loads(told.stdout)["error"]
    assert error["what"] == "there is no such configuration file"
    assert "headrace init" in error["hint"]


def test_the_stacks_addresses_can_be_pasted_and_hold_no_password(tmp_path: Path) -> None:
    from headrace.sidecar.cli.dev import exports

    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "postgres.password").write_text("hush")
    at = {"host": "127.0.0.1", "port": 5999, "user": "postgres", "password_file": str(folder / "postgres.password")}
    made = exports({"postgres": at, "kafka": "127.0.0.1:1", "connect": "http://127.0.0.1:2"})
    lines = "\n".join(f"export {name}={value}" for name, value in made.items())
    assert "hush" not in lines
    shown = subprocess.run(["sh", "-c", f"{lines}\nenv"], capture_output=True, text=True, check=True).stdout
    assert "SOURCE_URL=postgresql://postgres:hush@127.0.0.1:5999/postgres\n" in shown
    assert f"CONNECTOR_PASSWORD=${{directory:{folder}:postgres.password}}\n" in shown
