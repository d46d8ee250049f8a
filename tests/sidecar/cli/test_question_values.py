"""The values that `headrace query PROGRAM.RELATION` takes: `--column value`, one for each column that is given."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from headrace.sidecar.cli import view_commands
from headrace.sidecar.cli.app import app
from headrace.views.yaml_reader import ConfigError


def asked(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the command asks the sidecar for."""
    bodies: list[dict[str, object]] = []

    class Asked:
        def __init__(self, *_: object) -> None: ...

        def stream(self, method: str, path: str, body: dict[str, object]) -> list[dict[str, object]]:
            bodies.append({"method": method, "path": path, **body})
            return iter([{"columns": [], "rows": 0, "epoch": 1}])  # type: ignore[return-value]

    monkeypatch.setattr(view_commands, "Client", Asked)
    monkeypatch.setattr("headrace.sidecar.cli.app.load_partly", lambda _: None)
    found = CliRunner().invoke(app, ["query", *arguments, "--json"])
    assert found.exit_code == 0, found.output
    return bodies[0]


def test_a_question_and_a_select_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    body = asked("access.in_team", "--person", "17", "--team=-1", monkeypatch=monkeypatch)
    assert body["question"] == "access.in_team"
    assert body["values"] == {"person": "17", "team": "-1"}
    assert asked("select * from access.in_team", monkeypatch=monkeypatch)["sql"] == "select * from access.in_team"


@pytest.mark.parametrize("given", [["--person"], ["person", "17"], ["--", "17"]])
def test_values_in_another_form_are_refused(given: list[str]) -> None:
    with pytest.raises(ConfigError, match="--column value"):
        view_commands._values(given)


def test_a_select_takes_none() -> None:
    with pytest.raises(ConfigError, match="takes no values"):
        view_commands.run_query(None, None, "select 1", ["--person", "1"], as_csv=False, as_json=False)  # type: ignore[arg-type]
