"""What a process is to do without."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

PROGRAM = """
import sys
import headrace.sidecar.process.bootstrap
headrace.sidecar.process.bootstrap.forgo("pandas")
import headrace.sidecar.process.serve
import pyarrow as pa
pa.array([1, None])
print("pandas" in sys.modules)
"""

ASKING = """
import sys
import headrace.sidecar.cli.app, headrace.sidecar.cli.status, headrace.sidecar.cli.view_commands
print(sorted({!r} & sys.modules.keys()))
"""
HEAVY = {"numba", "pandas", "psycopg", "sqlglot", "confluent_kafka", "headrace.sidecar.wiring.build"}


def test_a_command_that_asks_a_running_sidecar_does_not_load_the_engine() -> None:
    assert all(find_spec(name) for name in HEAVY), "a module of another name is never loaded"
    found = subprocess.run([sys.executable, "-c", ASKING.format(HEAVY)], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("[]\n", "")


def test_a_forgone_package_is_not_loaded_and_nothing_misses_it() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("False\n", "")
