"""Starting one of the stack's JVM servers: class path, flags, class archive and logging are the same for both.

It always holds that an archive belongs to exactly one server, Java version and list of jars, so that a change of any
of them starts without one instead of with a wrong one. Called by the broker and by Connect.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.sidecar.devstack.cache import cache_folder
from headrace.sidecar.devstack.jars import jars_folder, lock_digest
from headrace.sidecar.devstack.java import Java, find_java
from headrace.sidecar.devstack.processes import Child, spawn

_LOGGING = """status = off
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


@dataclass(frozen=True)
class Toolbox:
    """What every JVM of the stack is started with: the Java, the folder of jars, the cache that holds archives.

    `training` JVMs write their archive when they end, and must then be given a minute to do so.
    """

    java: Java
    jars: Path
    cache: Path
    training: bool = False

    @classmethod
    def find(cls, *, training: bool = False) -> Toolbox:
        """The machine's: jars are fetched now if the cache does not hold them."""
        cache = cache_folder()
        return cls(find_java(), jars_folder(cache), cache, training)

    def archive(self, server: str) -> Path:
        """Where the class archive of `server` is, or will be."""
        return self.cache / "archives" / f"{server}-{self.java.version}-{lock_digest()}.classes"

    @property
    def trained(self) -> bool:
        """Whether both servers have their archive, so that a start takes half the time."""
        return all(self.archive(server).exists() for server in ("kafka", "connect"))

    def command(
        self, server: str, heap_mb: int, main: str, arguments: Sequence[str | Path], logging: Path
    ) -> list[str]:
        """The command line of one server."""
        archive = self.archive(server)
        if self.training:
            archive = archive.with_suffix(".arriving")
            archive.parent.mkdir(parents=True, exist_ok=True)
        flags = [*self.java.flags(heap_mb), *self.java.archive_flags(archive, training=self.training)]
        flags.append(f"-Dlog4j2.configurationFile={logging}")
        return [str(self.java.launcher), *flags, "-cp", f"{self.jars}/*", main, *(str(word) for word in arguments)]

    def tool(self, main: str, arguments: Sequence[str | Path]) -> list[str]:
        """The command line of a short-lived tool among the jars."""
        flags = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [str(self.java.launcher), *flags, "-cp", f"{self.jars}/*", main, *(str(word) for word in arguments)]

    def keep_archive(self, server: str) -> None:
        """After a training JVM has ended: give its archive the name under which it is used."""
        arriving = self.archive(server).with_suffix(".arriving")
        if self.training and arriving.exists():
            arriving.rename(self.archive(server))


def launch(
    server: str,
    toolbox: Toolbox,
    main: str,
    arguments: Sequence[str | Path],
    *,
    folder: Path,
    heap_mb: int,
    death: signal.Signals = signal.SIGTERM,
) -> Child:
    """Start the JVM `server` in `folder`, its log in `<server>.log` there; returns at once.

    `death`: the signal that the process gets when its parent is gone.
    """
    logging = folder / "log4j2.properties"
    if not logging.exists():
        logging.write_text(_LOGGING)
    command = toolbox.command(server, heap_mb, main, arguments, logging)
    return spawn(server, command, folder / f"{server}.log", death=death, folder=folder)


def write_properties(file: Path, properties: Mapping[str, object]) -> None:
    """Write a Java properties file; values here hold no character that would need escaping."""
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
