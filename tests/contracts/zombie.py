"""`python -m tests.contracts.zombie postgres|kafka ADDRESS NAME STATE`: a writer in a process of its own, to be stopped and
woken up again. It takes a generation, opens the sink, and then writes epochs and checkpoints until it is refused.

Prints one JSON line an epoch, and how it ended as the last one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import SinkError
from headrace.sidecar.state.checkpoint import Capture, CheckpointStore
from headrace.sidecar.state.generation import carry_over, take_generation
from tests.contracts.sink import ORDERS, changes, frontier, whole


def sink_of(kind: str, address: str, name: str) -> PostgresSink | KafkaSink:
    """The same sink for whoever asks."""
    if kind == "postgres":
        return PostgresSink(name, address)
    return KafkaSink(name, {"bootstrap.servers": address}, f"{name}.", sidecar=name, replication=1)


def main(kind: str, address: str, name: str, state: Path) -> None:
    """Write until refused."""
    generation, previous = take_generation(state)
    sink = sink_of(kind, address, name)
    sink.open([ORDERS])
    carry_over(generation, previous)
    store = CheckpointStore(generation, "zombie")
    sink.write({ORDERS.name: whole(ORDERS, 1, (0, None, "zombie"))}, frontier(1))
    epoch = 1
    try:
        while True:
            epoch += 1
            sink.write({ORDERS.name: changes(ORDERS, ((epoch, None, "zombie"), epoch, 1))}, frontier(epoch))
            print(json.dumps({"epoch": epoch}), flush=True)
            time.sleep(0.02)
    except SinkError as error:
        # what a step that was under way would still do to the state folder
        store.write(Capture(epoch=epoch, write=dict))
        print(json.dumps({"ended": error.code, "epoch": epoch}), flush=True)
    finally:
        sink.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
