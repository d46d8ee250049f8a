"""Where workers run: the one place that knows which host it is.

Always: a process has one Spark session at most, kept from one set of workers to the next; it is made when the first is
started. Called by wiring alone.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import headrace
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.hosting import REFUSED_CONF, SparkConfig
from headrace.sidecar.execution.workers.local_pool import LocalPool
from headrace.sidecar.execution.workers.pool import Maker, WorkerLost
from headrace.views.yaml_reader import ConfigError

SET_UP: Mapping[str, str] = {
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.dynamicAllocation.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.executor.heartbeatInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "15s",
    "spark.network.timeoutInterval": "3s",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
_PASSED_ON = ("NUMBA_CPU_NAME", "NUMBA_CACHE_DIR", "HEADRACE_CACHE", "HEADRACE_FAILPOINT", "MALLOC_ARENA_MAX")
_HERE = ("127.0.0.1", "localhost", "::1")


def make_pool(settings: Settings, generation: int) -> Maker:
    """What starts the workers that the configuration asks for. Raises ConfigError where Spark is not installed."""
    engine = settings.config.engine
    if engine.host == "local":
        return LocalPool
    if find_spec("pyspark") is None:
        raise ConfigError("engine.host is spark and pyspark is not installed", file=settings.path, field="engine.host",
                          hint="pip install 'headrace[spark]'")  # fmt: skip
    from headrace.sidecar.execution.workers.spark_pool import SparkCluster

    conf = engine.spark.conf
    driver = conf.get("spark.driver.bindAddress") or conf.get("spark.driver.host") or own_host(engine.spark)
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return SparkCluster(
        partial(spark_session, settings), settings.config.name, generation, driver, ports_of(engine.spark), passed,
        tls=engine.spark.is_encrypted, renew=partial(end_session, settings),
    )  # fmt: skip


def ports_of(config: SparkConfig) -> Sequence[int]:
    """The ports to listen on; 0 for any."""
    if config.ports is None:
        return (0,)
    first, last = map(int, config.ports.split("-"))
    return range(first, last + 1)


def is_here(config: SparkConfig) -> bool:
    """Whether the master is on this machine, so that its executors have this interpreter and program."""
    master = config.master or ""
    return master.startswith("local") or urlsplit(master).hostname in _HERE


def own_host(config: SparkConfig) -> str:
    """Under which executors reach this machine."""
    return "127.0.0.1" if is_here(config) else socket.gethostbyname(socket.gethostname())


def own_path() -> str:
    """Where this process finds the program and what it was pointed to beside."""
    beside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(Path(headrace.__file__).parent.parent), *filter(None, beside)])


def conf_of(settings: Settings) -> dict[str, str]:
    """All that the session is set up with: the configuration's own settings go over ours."""
    config, name = settings.config.engine.spark, settings.config.name
    conf = {"spark.app.name": f"headrace {name}", **SET_UP}
    if is_here(config):
        host = own_host(config)
        conf |= {"spark.driver.host": host, "spark.driver.bindAddress": host, "spark.pyspark.python": sys.executable,
                 "spark.executorEnv.PYTHONPATH": own_path()}  # fmt: skip
    if config.python is not None and config.python.endswith((".tar.gz", ".tgz", ".zip")):
        conf |= {"spark.archives": f"{config.python}#environment", "spark.pyspark.python": "./environment/bin/python"}
    elif config.python is not None:
        conf["spark.pyspark.python"] = config.python
    return {**conf, **config.conf}


def end_session(settings: Settings) -> bool:
    """End the Spark session that we made, after its cluster has forgotten it, so that the next workers begin another. Returns
    whether the session was ours."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if settings.config.engine.spark.master is None or running is None:
        return False
    running.stop()
    return True


def _forget_dead_jvm() -> None:
    """Where the JVM that pyspark started for this process has died, have the next session start another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway: Any = SparkContext._gateway
    child = getattr(gateway, "proc", None)
    if child is None or child.poll() is None:
        return
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def spark_session(settings: Settings) -> Any:
    """The session of this process. Raises ConfigError for one that cannot hold workers, WorkerLost where there is none."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from headrace.connectors.spark.java_home import java_home

    config = settings.config.engine.spark
    _forget_dead_jvm()
    running = SparkSession.getActiveSession()
    if running is None and config.master is not None:
        folder = settings.state / "spark"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["JAVA_HOME"] = str(java_home(folder))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if is_here(config):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master(config.master)
        for name, value in {**conf_of(settings), "spark.local.dir": str(folder.absolute() / "scratch")}.items():
            builder = builder.config(name, value)
        heard = signal.getsignal(signal.SIGINT)
        try:
            running = builder.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            raise WorkerLost("no Spark session", master=config.master, error=str(error).splitlines()[0]) from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, heard)  # Spark takes Ctrl-C for itself: ours drains
    if running is None:
        raise ConfigError("engine.spark.master is missing, and no Spark job calls us", file=settings.path,
                          field="engine.spark.master", hint="name a master, or start with spark-submit")  # fmt: skip
    if not hasattr(running, "_jsc") and not hasattr(running.sparkContext, "_jsc"):
        raise ConfigError("Spark Connect cannot host workers", file=settings.path, field="engine.spark.master",
                          value=config.master, hint="name the master itself: spark://, k8s://, yarn")  # fmt: skip
    for name, why in REFUSED_CONF.items():
        if running.sparkContext.getConf().get(name, "false").lower() == "true":
            raise ConfigError(f"the session has {name}", file=settings.path, field=f"engine.spark.conf.{name}", value="true",
                              hint=why)  # fmt: skip
    return running
