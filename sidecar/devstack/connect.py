"""An embedded Kafka Connect worker with Debezium's Postgres connector, and the few calls of its REST API used.

It always holds that `start` returns only when connectors can be registered. The worker's own settings are here;
what tunes a connector (poll interval, linger, batch sizes) belongs to its configuration, given to `put`. Called by the
stack.
"""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.sidecar.devstack import jvm, ports
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.processes import Child

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_HEAP_MB = 512
_POLL_SECONDS = 0.02
_TIMEOUT_SECONDS = 60.0

_PROVIDERS = ("directory", "env", "file")


class ConnectApi:
    """A Connect worker's REST API, wherever the worker runs.

    `slot_active(name)` tells whether a replication slot is in use. It is the only proof that a task streams: the state RUNNING
    may date from before a restart.
    """

    def __init__(self, host: str, port: int, slot_active: Callable[[str], bool] | None = None) -> None:
        self.host = host
        self.port = port
        self._slot_active = slot_active

    @property
    def url(self) -> str:
        """The REST API's address."""
        return f"http://{self.host}:{self.port}"

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """One call; (status, parsed JSON, or text where the answer is none). OSError where nobody answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_SECONDS)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:  # the web server's own page, before the API is there
            return answer.status, text.decode("utf-8", "replace")

    def ready(self) -> bool:
        """Whether connectors can be registered; the root answers long before that."""
        try:
            return self.request("GET", "/connectors")[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def put(self, name: str, config: Mapping[str, str], seconds: float = _TIMEOUT_SECONDS) -> None:
        """Register connector `name`, or change its configuration; waits out a rebalance."""
        end = time.monotonic() + seconds
        while True:
            status, answer = self.request("PUT", f"/connectors/{name}/config", dict(config))
            if status in (http.client.OK, http.client.CREATED):
                return
            if status != http.client.CONFLICT or time.monotonic() > end:
                message = answer.get("message", answer) if isinstance(answer, dict) else answer
                raise DevstackError("Connect refused a connector", connector=name, status=status, hint=str(message))
            time.sleep(_POLL_SECONDS)

    def delete(self, name: str) -> None:
        """Remove connector `name`; nothing happens where there is none."""
        self.request("DELETE", f"/connectors/{name}")

    def wait_running(self, name: str, slot: str | None = None, seconds: float = _TIMEOUT_SECONDS) -> None:
        """Until the first task of `name` runs and, where `slot` is given, that replication slot is in use.

        DevstackError carries the task's own trace when it has failed.
        """
        end = time.monotonic() + seconds
        state = "UNKNOWN"
        while time.monotonic() < end:
            state, trace = self._task(name)
            if state == "FAILED":
                raise DevstackError("a connector's task failed", connector=name, hint=f"Connect says:\n{trace[:2000]}")
            if state == "RUNNING" and (slot is None or self._slot_active is None or self._slot_active(slot)):
                return
            time.sleep(_POLL_SECONDS)
        raise DevstackError(
            f"a connector did not run within {seconds:g} seconds", connector=name, state=state, slot=slot
        )

    def _task(self, name: str) -> tuple[str, str]:
        status, answer = self.request("GET", f"/connectors/{name}/status")
        if status != http.client.OK or not answer["tasks"]:
            return "UNASSIGNED", ""
        task = answer["tasks"][0]
        return task["state"], task.get("trace", "")


class EmbeddedConnect(ConnectApi):
    """One worker in one folder; `start` and `stop` by its single owner."""

    def __init__(
        self,
        folder: Path,
        toolbox: jvm.Toolbox,
        port: int,
        bootstrap: str,
        *,
        slot_active: Callable[[str], bool] | None = None,
        settings: Mapping[str, str] | None = None,
        launched: Callable[[], None] | None = None,
    ) -> None:
        """`settings` go over ours, as in connect-distributed.properties.

        `launched` is called whenever there is a new process.
        """
        super().__init__(ports.HOST, port, slot_active)
        self.folder = folder
        self.log = folder / "connect.log"
        self.child: Child | None = None
        self._toolbox = toolbox
        self._launched = launched
        self._bootstrap = bootstrap
        self._settings = dict(settings or {})

    def start(self, seconds: float = 60.0) -> EmbeddedConnect:
        """Start the worker and return when connectors can be registered; the broker must be there, or coming."""
        self.launch()
        self.wait(seconds)
        return self

    def launch(self) -> None:
        """The first half of `start`: everything but the wait."""
        if self.child is not None and self.child.alive:
            return
        configuration = self.folder / "connect.properties"
        jvm.write_properties(configuration, self._properties())
        self.child = jvm.launch(
            "connect",
            self._toolbox,
            _MAIN,
            [configuration],
            folder=self.folder,
            heap_mb=_HEAP_MB,
            death=signal.SIGKILL,  # the broker ends with us too, and a worker asked to end would wait for it for long
        )
        if self._launched is not None:
            self._launched()

    def wait(self, seconds: float = 60.0) -> None:
        """The second half of `start`."""
        if self.child is None:
            raise DevstackError("the embedded Connect was not started yet", folder=self.folder)
        self.child.wait_until(lambda: ports.is_open(self.port) and self.ready(), seconds)

    def stop(self, seconds: float = 15.0) -> None:
        """Stop the tasks and the worker; the broker must still be there. Idempotent."""
        if self.child is not None:
            self.child.stop(seconds)
            self.child = None

    def _properties(self) -> dict[str, object]:
        properties: dict[str, object] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "connect",
            "listeners": self.url,
            "rest.advertised.host.name": self.host,
            "rest.advertised.port": self.port,
            "plugin.discovery": "service_load",  # 0.8 s instead of 2.4 s: every plugin here declares itself
            "topic.creation.enable": "true",
            "connector.client.config.override.policy": "All",
            "offset.flush.interval.ms": 1_000,
            # one worker alone has nobody to wait for
            "scheduled.rebalance.max.delay.ms": 0,
            "session.timeout.ms": 3_000,
            "heartbeat.interval.ms": 1_000,
            "rebalance.timeout.ms": 5_000,
            "task.shutdown.graceful.timeout.ms": 2_000,
            # it is started beside the broker, not after it: ask again soon
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
        # a connector's password need not stand in its configuration, which REST shows: ${directory:/folder:file}
        properties["config.providers"] = ",".join(_PROVIDERS)
        for name in _PROVIDERS:
            kind = "EnvVar" if name == "env" else name.capitalize()
            properties[f"config.providers.{name}.class"] = (
                f"org.apache.kafka.common.config.provider.{kind}ConfigProvider"
            )
        for side in ("key", "value"):
            properties[f"{side}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
            properties[f"{side}.converter.schemas.enable"] = "false"
        for topic in ("config", "offset", "status"):
            properties[f"{topic}.storage.topic"] = f"_connect-{topic}"
            properties[f"{topic}.storage.replication.factor"] = 1
        properties |= {"offset.storage.partitions": 1, "status.storage.partitions": 1}
        return properties | self._settings
