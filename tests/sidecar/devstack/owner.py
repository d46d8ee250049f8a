"""A program that owns a stack until a test ends it: `python -m tests.sidecar.devstack.owner FOLDER`.

It prints one line of JSON, `status(folder)`, when everything runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace.sidecar.devstack.cli import up

if __name__ == "__main__":
    up(Path(sys.argv[1]), ready=lambda state: print(json.dumps(state), flush=True))
