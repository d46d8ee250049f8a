"""What every benchmark's report is: rows with a goal and a peer, printed as a table, written to build/bench/NAME.json.

Always: a ratio above one says that ours is better, for rates and for times alike; a row without goal is neither met nor
missed; every row carries the machine it was measured on and the command that measures it again. `make docs` reads them.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FOLDER = Path("build/bench")


def row(
    name: str, unit: str, ours: float, goal: float | None = None, *, peer: str | None = None,
    peer_value: float | None = None, note: str = "",
) -> Row:  # fmt: skip
    """One line. A unit that ends in `/s` is a rate, to be at least its goal; anything else is to be at most its goal."""
    rate = unit.endswith("/s")
    ratio = None
    if peer_value is not None and ours > 0 and peer_value > 0:
        ratio = round(ours / peer_value if rate else peer_value / ours, 3)
    met = None if goal is None else bool(ours >= goal if rate else ours <= goal)
    figure = round(float(ours), 3)
    shown = None if peer_value is None else round(float(peer_value), 3)
    made: Row = {"name": name, "unit": unit, "ours": figure, "peer": peer, "peer_value": shown, "ratio": ratio}
    return made | {"goal": goal, "met": met} | ({"note": note} if note else {})


def machine() -> Mapping[str, Any]:
    """The machine, and how busy it was: cores, memory in MiB, one-minute load, versions. No name of it."""
    facts: dict[str, Any] = {
        "cpu": _cpu(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(), "load_1m": round(os.getloadavg()[0], 1),
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    facts["memory_mib"] = pages * size // 2**20
    return facts


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def publish(name: str, rows: Sequence[Row], *, folder: Path = FOLDER, arguments: str = "", command: str = "") -> None:
    """Print the table and write `folder/NAME.json`. `arguments`: those of this run, where they are not the defaults; `command`:
    what measures it, where that is no `make bench-NAME`."""
    where = machine()
    if not command:
        module = f"tests.bench.bench_{name.replace('-', '_')}"
        command = f"make bench-{name}" if not arguments else f"python -m {module} {arguments}"
    sys.stdout.write(table(rows) + "\n")
    sys.stdout.write(", ".join(f"{k} {v}" for k, v in where.items()) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    body = [{**r, "machine": where, "command": command} for r in rows]
    (folder / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n")


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    wide = max((len(r["name"]) for r in rows), default=4)
    lines = [f"{'':{wide}} {'ours':>13} {'unit':<9} {'goal':>12} {'':6} {'ratio':>6}  peer"]
    for r in rows:
        goal = "" if r["goal"] is None else figure(r["goal"])
        met = {True: "met", False: "MISSED", None: ""}[r["met"]]
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f}"
        peer = "" if r["peer_value"] is None else f"{figure(r['peer_value'])} {r['peer']}"
        lines.append(
            f"{r['name']:{wide}} {figure(r['ours']):>13} {r['unit']:<9} {goal:>12} {met:6} {ratio:>6}  {peer}".rstrip()
        )
    return "\n".join(lines)


def figure(value: float) -> str:
    """A number as people read it.

    >>> figure(1234567.8), figure(12.345), figure(0.0)
    ('1,234,568', '12.3', '0')
    """
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
