"""An embedded Kafka: one KRaft node, broker and controller in one JVM, on loopback ports, in one folder.

It always holds that topics are never made by accident, that a clean stop lets the next start be quick, and that after a
kill -9 the next start waits two seconds, not nine. Called by the stack.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.sidecar.devstack import jvm, ports
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.processes import Child, run

_MAIN = "kafka.Kafka"
_HEAP_MB = 384
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class EmbeddedKafka:
    """One broker in one folder; `start` and `stop` by its single owner."""

    def __init__(
        self,
        folder: Path,
        toolbox: jvm.Toolbox,
        port: int,
        controller_port: int,
        settings: Mapping[str, str] | None = None,
        launched: Callable[[], None] | None = None,
    ) -> None:
        """`settings` go over ours, as in server.properties; `launched` is called whenever there is a new process."""
        self.folder = folder
        self.port = port
        self.log = folder / "kafka.log"
        self.child: Child | None = None
        self._toolbox = toolbox
        self._launched = launched
        self._controller_port = controller_port
        self._settings = dict(settings or {})
        self._data = folder / "kafka"
        self._configuration = folder / "kafka.properties"

    @property
    def bootstrap(self) -> str:
        """What clients give as bootstrap.servers."""
        return f"{ports.HOST}:{self.port}"

    def start(self, seconds: float = 60.0) -> EmbeddedKafka:
        """Format the folder if it is new, start the broker, and return when it takes connections."""
        self.launch()
        self.wait(seconds)
        return self

    def launch(self) -> None:
        """The first half of `start`: everything but the wait."""
        if self.child is not None and self.child.alive:
            return
        jvm.write_properties(self._configuration, self._properties())
        self._format()
        self.child = jvm.launch(
            "kafka", self._toolbox, _MAIN, [self._configuration], folder=self.folder, heap_mb=_HEAP_MB
        )
        if self._launched is not None:
            self._launched()

    def wait(self, seconds: float = 60.0) -> None:
        """The second half of `start`: until the broker's port is open."""
        if self.child is None:
            raise DevstackError("the embedded Kafka was not started yet", folder=self.folder)
        self.child.wait_until(lambda: ports.is_open(self.port), seconds)

    def stop(self, seconds: float = 15.0) -> None:
        """A controlled shutdown. Idempotent."""
        if self.child is not None:
            self.child.stop(seconds)
            self.child = None

    def _properties(self) -> dict[str, object]:
        client, controller = f"{ports.HOST}:{self.port}", f"{ports.HOST}:{self._controller_port}"
        properties: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": self._data,
            "auto.create.topics.enable": "false",
            "num.partitions": 1,
            "num.network.threads": 2,
            "num.io.threads": 4,
            "log.cleaner.dedupe.buffer.size": 4 << 20,
            # after a kill -9 the old session must end before the node may come back; 9 s by default
            "broker.session.timeout.ms": 2_000,
            "broker.heartbeat.interval.ms": 500,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1_000,
        }
        for topic in _INTERNAL_TOPICS:
            properties |= {f"{topic}.replication.factor": 1, f"{topic}.num.partitions": 1}
        properties |= {"transaction.state.log.min.isr": 1, "share.coordinator.state.topic.min.isr": 1}
        return properties | self._settings

    def _format(self) -> None:
        """Make the node's identity; what else formatting writes is the same for every node and kept in the cache."""
        identity = self._data / "meta.properties"
        if identity.exists():
            return
        self._data.mkdir(parents=True, exist_ok=True)
        features = self._toolbox.cache / "kafka" / f"{self._toolbox.jars.name}.checkpoint"
        if features.exists():
            shutil.copyfile(features, self._data / "bootstrap.checkpoint")
            jvm.write_properties(
                identity, {"version": 1, "cluster.id": _new_id(), "node.id": 1, "directory.id": _new_id()}
            )
            return
        command = self._toolbox.tool("kafka.tools.StorageTool", ["format", "-t", _new_id(), "-c", self._configuration])
        run("formatting Kafka's folder", command, folder=self.folder)
        features.parent.mkdir(parents=True, exist_ok=True)
        arriving = features.with_name(f"{features.name}.{uuid.uuid4().hex}")
        shutil.copyfile(self._data / "bootstrap.checkpoint", arriving)
        arriving.rename(features)


def _new_id() -> str:
    """A random Kafka id: 22 characters of URL-safe base64, not starting with a dash, which tools take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
