"""One session of our side: a command a line on standard input, an answer a line of JSON, as the peer's program has it.

Run as `python -m tests.bench.peers.ours SESSION`. A command is `verb prefix number`. Started by `contest`.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow as pa

from headrace.engine.kernels import warm
from tests.bench.peers.laps import resident
from tests.bench.peers.sessions import SESSIONS


def main() -> None:
    """Serve one session until standard input ends."""
    warm()
    pa.array(np.zeros(1))  # at the first one pyarrow looks for pandas, whose 46 MB hold no row
    commands = SESSIONS[sys.argv[1]]().commands()
    print(json.dumps({"bytes": resident()}), flush=True)
    for line in sys.stdin:
        verb, prefix, number = [*line.split(), "", ""][:3]
        print(json.dumps(commands[verb](prefix, int(number or 1)).line()), flush=True)


if __name__ == "__main__":
    main()
