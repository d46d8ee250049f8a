"""View files: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.views.view_files import load
from headrace.views.view_models import ViewsFile
from headrace.views.yaml_models import json_schema
from headrace.views.yaml_reader import ConfigError

GOOD = """\
version: 1
views:
  - name: big_orders
    description: Orders worth a look
    sql: |
      select id, total
      from orders
    key: [id]
    sinks: [warehouse, bus]
    columns:
      - {name: id, description: the order}
    tags: [a]
    meta: {owner: me, level: 3}
"""


def test_a_view_is_read(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text(GOOD)
    (view,) = load(tmp_path)
    assert (view.name, view.key, view.sinks, view.tags) == ("big_orders", ("id",), ("warehouse", "bus"), ("a",))
    assert view.sql == "select id, total\nfrom orders\n"
    assert view.meta == {"owner": "me", "level": 3}
    assert view.columns[0].description == "the order"
    assert (view.line, view.place(view.sql.index("orders"))) == (3, (7, 12))


def test_folders_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, file in (("b", "b.yml"), ("a", "a.yaml"), ("c", "sub/c.yaml"), ("d", "notes.txt")):
        (tmp_path / file).write_text(f"version: 1\nviews: [{{name: {name}, sql: select}}]\n")
    assert [v.name for v in load(tmp_path)] == ["a", "b", "c"]


def test_a_mounted_configmap_is_read_once(tmp_path: Path) -> None:
    """A ConfigMap's volume: the files in a hidden folder, and links to them through another link beside it."""
    real = tmp_path / "..2026_11_25_00_00_00.123"
    real.mkdir()
    (real / "v.yaml").write_text(GOOD)
    (tmp_path / "..data").symlink_to(real.name)
    (tmp_path / "v.yaml").symlink_to("..data/v.yaml")
    (view,) = load(tmp_path)
    assert (view.name, view.file) == ("big_orders", str(tmp_path / "v.yaml"))


def test_sql_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select id\nfrom orders")
    (tmp_path / "v.yaml").write_text("version: 1\nviews: [{name: a, sql_file: q.sql}]\n")
    (view,) = load(tmp_path / "v.yaml")
    assert view.file == str(tmp_path / "q.sql")
    assert view.place(10) == (2, 1)


@pytest.mark.parametrize(
    ("text", "what", "line", "hint"),
    [
        ("version: 1\nviews: [{name: a, sql: x, sink: [b]}]", "unknown key 'sink'", 2, "did you mean sinks?"),
        ("version: 1\nviews: [{name: Big, sql: x}]", "string should match pattern", 2, ""),
        ("version: 1\nviews: [{name: a}]", "a view has either sql or sql_file", 2, ""),
        ("version: 1\nviews: [{name: a, sql: x, sql_file: y}]", "a view has either sql or sql_file", 2, ""),
        ("version: 1\nviews: [{name: a, sql: x, key: []}]", "tuple should have at least 1 item", 2, ""),
        ("version: 1\nviews: [{name: a, sql_file: nope.sql}]", "cannot read", 2, ""),
        ("version: 1\nviews:\n- {name: a, sql: x}\n- {name: a, sql: y}", "view a is declared twice", 4, "rename"),
        ("version: 2\nviews: []", "must be one of 1", 1, ""),
    ],
)
def test_mistakes(tmp_path: Path, text: str, what: str, line: int, hint: str) -> None:
    (tmp_path / "v.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert caught.value.what.startswith(what)
    assert caught.value.where["line"] == line
    assert hint in caught.value.hint


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder"):
        load(tmp_path / "nope")


def test_the_json_schema_knows_the_keys() -> None:
    schema = json_schema(ViewsFile)
    assert set(schema["$defs"]["ViewModel"]["properties"]) >= {"name", "sql", "sql_file", "key", "sinks", "columns"}
