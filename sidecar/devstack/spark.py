"""An embedded Spark: a standalone master and workers from the installed pyspark, on loopback ports, in one folder.

Always: Spark is the wheel's own, on the stack's Java; a launcher leaves out a module that this Java does not have. Executors
end with their worker. Called by the stack, the demo and the tests' fixtures.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.java import find_java
from headrace.sidecar.devstack.processes import Child, spawn

_DAEMON_MB = 256
_READY_SECONDS = 60.0
_LAUNCHER = """#!/bin/sh
for a; do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


class EmbeddedSpark:
    """One master and `workers` workers, of `cores` slots each; `start` and `stop` by its single owner."""

    def __init__(
        self, folder: Path, port: int, *, workers: int = 2, cores: int = 2, memory_mb: int = 2048,
        launched: Callable[[], None] | None = None, host: str = ports.HOST,
        settings: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`memory_mb`: what each worker may give to executors; `launched` is called whenever there are new processes;
        `settings`: of Spark, for master and workers."""
        self._settings = settings or {}
        self.host = host
        self.folder, self.port = folder / "spark", port
        self.log = self.folder / "master.log"
        self.child: Child | None = None
        self.workers: list[Child] = []
        self._count, self._cores, self._memory_mb, self._launched = workers, cores, memory_mb, launched

    @property
    def master(self) -> str:
        """What `engine.spark.master` says."""
        return f"spark://{self.host}:{self.port}"

    @property
    def java_home(self) -> Path:
        """What sessions on this master are given as JAVA_HOME."""
        return self.folder / "java-home"

    def start(self, seconds: float = _READY_SECONDS) -> EmbeddedSpark:
        """Start all, and return when every worker has registered."""
        self.launch()
        self.wait(seconds)
        return self

    def launch(self) -> None:
        """The first half of `start`: everything but the wait."""
        if self.child is not None and self.child.alive:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for log in self.folder.glob("*.log"):
            log.unlink()
        self._write_launcher()
        self._launch_master()
        self.workers = [self._launched_worker(k) for k in range(self._count)]
        if self._launched is not None:
            self._launched()

    def restart_master(self, pause: float = 0.0) -> None:
        """SIGKILL the master, wait, and start another on its port, which knows of no application."""
        assert self.child is not None, "it was started"
        self.child.kill()
        time.sleep(pause)
        self._launch_master()

    def restart_worker(self, k: int, pause: float = 0.0) -> None:
        """SIGKILL a worker, of which its executors die, wait, and start another."""
        self.workers[k].kill()
        time.sleep(pause)
        self.workers[k] = self._launched_worker(k)

    def machine(self, name: str) -> tuple[str, Sequence[str]]:  # noqa: ARG002
        """The address that a part listens on, and the words that its command line begins with."""
        return self.host, ()

    def _launch_master(self) -> None:
        arguments = ["--port", str(self.port), "--webui-port", "0"]
        self.child = self._spawn("master", "org.apache.spark.deploy.master.Master", arguments)

    def _launched_worker(self, k: int) -> Child:
        arguments = ["--webui-port", "0", "--cores", str(self._cores), "--memory", f"{self._memory_mb}m", "--work-dir",
                     str(self.folder / f"work{k}"), self.master]  # fmt: skip
        return self._spawn(f"worker{k}", "org.apache.spark.deploy.worker.Worker", arguments)

    def wait(self, seconds: float = _READY_SECONDS) -> None:
        """The second half of `start`: until all workers are known to the master."""
        if self.child is None:
            raise DevstackError("the embedded Spark was not started yet", folder=self.folder)
        self.child.wait_until(lambda: ports.is_open(self.port, self.host), seconds)
        for worker in self.workers:
            worker.wait_until(lambda log=worker.log: "Successfully registered" in log.read_text(), seconds)  # type: ignore[misc]

    def stop(self, seconds: float = 10.0) -> None:
        """End the workers, which end their executors, and then the master. Idempotent."""
        for child in self.workers:
            child.farewell()
        for child in self.workers:
            child.stop(seconds)
        if self.child is not None:
            self.child.stop(seconds)
        self.child, self.workers = None, []

    def _spawn(self, name: str, main: str, arguments: list[str]) -> Child:
        options = [f"-D{key}={value}" for key, value in self._settings.items()]
        home, (host, prefix) = _pyspark(), self.machine(name)
        environment = {
            **os.environ, "JAVA_HOME": str(self.java_home), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": f"{_DAEMON_MB}m", "SPARK_NO_DAEMONIZE": "1", "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": " ".join(["-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
                                                f"-Dheadrace.folder={self.folder}", *options]),
        }  # fmt: skip
        command = [*prefix, str(home / "bin" / "spark-class"), main, "--host", host, *arguments]
        return spawn(f"spark-{name}", command, self.folder / f"{name}.log", folder=self.folder, environment=environment)

    def _write_launcher(self) -> None:
        launcher = self.java_home / "bin" / "java"
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(find_java().launcher))))
        launcher.chmod(0o755)


def _pyspark() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DevstackError("pyspark is not installed", hint="pip install 'headrace[spark,embedded]'")
    return Path(spec.origin).parent
