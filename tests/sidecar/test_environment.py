"""What a process is to do without."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import sidecar.environment
sidecar.environment.forgo("pandas")
import sidecar.hosts.local
import pyarrow as pa
pa.array([1, None])
print("pandas" in sys.modules)
"""

ASKING = """
import sys
import sidecar.cli, sidecar.console.status, sidecar.console.views, sidecar.requests
print(sorted({"numba", "pandas", "psycopg", "sqlglot", "confluent_kafka", "sidecar.wiring"} & sys.modules.keys()))
"""


def test_a_command_that_asks_a_running_sidecar_does_not_load_the_engine() -> None:
    found = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("[]\n", "")


def test_a_forgone_package_is_not_loaded_and_nothing_misses_it() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("False\n", "")
