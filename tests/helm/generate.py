"""Writes what the chart has from elsewhere: the table of values in its README and the schemas of our own files.

The table is made of the comments in values.yaml; `values.schema.json` takes headrace.yaml's and the view files' schemas from
docs/schema. Called by `make docs`; `tests/helm/test_values.py` fails where either is out of date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "headrace"
BEGIN, END = "<!-- values: written by `make docs` -->", "<!-- end of values -->"
OWN = ("state", "views", "http")
"""Keys of headrace.yaml that the chart sets."""


def values() -> dict[str, Any]:
    """The chart's default values."""
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def documented() -> Iterator[tuple[str, Any, str]]:
    """Each documented key of values.yaml: its path, its default and its description, in the file's order."""
    defaults = values()
    trail: list[tuple[int, str]] = []
    described = ""
    for line in (CHART / "values.yaml").read_text().splitlines():
        if found := re.match(r"\s*# -- (.*)", line):
            described = found[1]
        elif found := re.match(r"( *)([A-Za-z]\w*):", line):
            indent = len(found[1])
            trail = [(i, name) for i, name in trail if i < indent] + [(indent, found[2])]
            if described:
                path = [name for _, name in trail]
                yield ".".join(path), at(defaults, path), described
            described = ""


def at(tree: Any, path: list[str]) -> Any:
    """What stands in nested maps under the path."""
    for name in path:
        tree = tree[name]
    return tree


def leaves() -> list[str]:
    """The paths that a user sets: those with a description above them, or nothing below them."""
    known = [path for path, _, _ in documented()]

    def below(tree: Any, path: str) -> Iterator[str]:
        if path in known or not isinstance(tree, dict) or not tree:
            yield path
        else:
            for name, value in tree.items():
                yield from below(value, f"{path}.{name}" if path else name)

    return list(below(values(), ""))


def readme() -> str:
    """README.md with a table of the values as they are now."""
    text = (CHART / "README.md").read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = ["| value | default | meaning |", "| --- | --- | --- |"]
    for path, default, meaning in documented():
        shown = json.dumps(default, ensure_ascii=False).replace("|", "\\|")
        rows.append(f"| `{path}` | `{shown}` | {meaning} |")
    return f"{before}{BEGIN}\n" + "\n".join(rows) + f"\n{END}{after}"


def schema() -> str:
    """values.schema.json with the schemas of headrace.yaml and of view files as they are now."""
    whole = json.loads((CHART / "values.schema.json").read_text())
    config = json.loads((ROOT / "docs/schema/headrace.schema.json").read_text())
    views = json.loads((ROOT / "docs/schema/views.schema.json").read_text())
    shared = {**config.pop("$defs"), **views.pop("$defs")}
    config["properties"] = {name: one for name, one in config["properties"].items() if name not in OWN}
    for one in (config, views):
        del one["$schema"]
    whole["$defs"] = {"Config": config, "ViewsFile": views, **shared}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write both files."""
    (CHART / "README.md").write_text(readme())
    (CHART / "values.schema.json").write_text(schema())


if __name__ == "__main__":
    sys.exit(main())
