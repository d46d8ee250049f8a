"""The log of epochs in a topic beside the one in a file: from a binding to its being durable, turn by turn.

Each turn binds one transaction, as a quiet sidecar does, and waits until it is settled; the broker is the embedded one, whose
disk is this machine's. Writes build/bench/epochs.json. Run it as `make bench-epochs`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from headrace.connectors.commit_place import Lsn
from headrace.connectors.kafka.epoch_topic import KafkaEpochTopic
from headrace.sidecar.devstack.jvm import Toolbox
from headrace.sidecar.devstack.kafka import EmbeddedKafka
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.epochs.epoch_binding import Binding, BoundTransaction
from headrace.sidecar.epochs.log_index import EpochLog
from headrace.sidecar.epochs.reclock import ReclockLog
from headrace.sidecar.epochs.topic_log import TopicLog
from headrace.sidecar.telemetry.metrics import quantile
from headrace.sidecar.transactions.model import EpochKind
from tests.bench.report import FOLDER, Row, publish, row

MORE_MS = 10.0
"""By how much a binding in the topic may take longer at the median."""
_WARM = 20


def binding(epoch: int) -> Binding:
    """One transaction as this epoch."""
    stamp = BoundTransaction("shop", EpochKind.TRANSACTION, epoch, Lsn(epoch * 100), epoch * 1_000_000)
    return Binding(epoch, (stamp,), {"shop.public.orders": {0: epoch}})


def bound(log: EpochLog, epoch: int) -> float:
    """Seconds until one transaction is durable."""
    one = binding(epoch)
    begun = time.perf_counter()
    log.append([one])
    log.settle()
    return time.perf_counter() - begun


def contest(logs: dict[str, EpochLog], turns: int) -> dict[str, list[float]]:
    """Milliseconds of each turn by log."""
    found: dict[str, list[float]] = {name: [] for name in logs}
    for epoch in range(1, turns + _WARM + 1):
        for name in logs if epoch % 2 else reversed(list(logs)):
            took = bound(logs[name], epoch)
            if epoch > _WARM:
                found[name].append(1000 * took)
    return found


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=400)
    chosen = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text, ExitStack() as undo:
        folder = Path(text)
        broker = EmbeddedKafka(folder / "kafka", Toolbox.find(), *pick(2))
        undo.callback(broker.stop)
        (folder / "kafka").mkdir()
        broker.start()
        topic = KafkaEpochTopic(
            {"bootstrap.servers": broker.bootstrap}, "headrace.bench.epochs", sidecar="bench", replication=1
        )
        logs: dict[str, EpochLog] = {"file": ReclockLog(folder / "log"), "topic": TopicLog(topic)}
        for log in logs.values():
            undo.callback(log.close)
        found = {name: sorted(some) for name, some in contest(logs, chosen.turns).items()}
        middle = statistics.median(found["file"])
        rows.append(row("bind one transaction durably in the topic, p50", "ms", statistics.median(found["topic"]),
                        middle + MORE_MS, peer="the file", peer_value=middle))  # fmt: skip
        rows.append(row("bind one transaction durably in the topic, p99", "ms", quantile(found["topic"], 0.99),
                        peer="the file", peer_value=quantile(found["file"], 0.99)))  # fmt: skip
    given = "" if chosen.turns == 400 else f"--turns {chosen.turns}"
    publish("epochs", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=given)


if __name__ == "__main__":
    main()
