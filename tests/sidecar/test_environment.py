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


def test_a_forgone_package_is_not_loaded_and_nothing_misses_it() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("False\n", "")
