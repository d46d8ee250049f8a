"""Machines for tests: network namespaces on one bridge, whose links can be cut so that packets are dropped without a word."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.sidecar.devstack.spark import EmbeddedSpark

_NOBODY = "02:00:00:00:00:99"
"""A hardware address that no machine has: what is sent there is dropped."""


def ip(*words: str) -> None:
    """Run `ip`. Raises CalledProcessError."""
    subprocess.run([shutil.which("ip") or "ip", *words], check=True, capture_output=True)


class Machines:
    """`count` machines beside this one, each with an address of its own. Single owner."""

    def __init__(self, count: int) -> None:
        """The test is skipped where no namespace can be made."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("needs root and the command ip, for network namespaces")
        self._tag, net = secrets.token_hex(3), f"10.213.{secrets.randbelow(250)}"
        self.here, self.there = f"{net}.1", [f"{net}.{k + 2}" for k in range(count)]
        self.names = [f"hr{self._tag}n{k}" for k in range(count)]
        self._bridge = f"hr{self._tag}b"
        try:
            ip("link", "add", self._bridge, "type", "bridge")
            ip("addr", "add", f"{self.here}/24", "dev", self._bridge)
            ip("link", "set", self._bridge, "up")
            for k, name in enumerate(self.names):
                ip("netns", "add", name)
                ip("link", "add", self._port(k), "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", self._port(k), "master", self._bridge, "up")
                self._within(k, "link", "set", "lo", "up")
                self._within(k, "addr", "add", f"{self.there[k]}/24", "dev", "eth0")
                self._within(k, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError as error:
            self.close()
            pytest.skip(f"no network namespaces here: {error.stderr!r}")

    def _port(self, k: int) -> str:
        return f"hr{self._tag}p{k}"

    def _within(self, k: int, *words: str) -> None:
        ip("-n", self.names[k], *words)

    def cut(self, k: int) -> None:
        """Nothing comes to a machine any more, or from it."""
        ip("link", "set", self._port(k), "down")

    def cut_between(self, one: int, other: int) -> None:
        """Two machines hear nothing of each other; all else goes on."""
        for k, to in ((one, other), (other, one)):
            self._within(k, "neigh", "replace", self.there[to], "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")

    def mend(self) -> None:
        """All links are well again."""
        for k in range(len(self.names)):
            ip("link", "set", self._port(k), "up")
            self._within(k, "neigh", "flush", "dev", "eth0", "nud", "permanent")

    def close(self) -> None:
        """Take all of it away."""
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)


class MachineSpark(EmbeddedSpark):
    """A master on this machine, and on each other one a Spark worker of one slot."""

    def __init__(self, folder: Path, port: int, machines: Machines) -> None:
        super().__init__(folder, port, workers=len(machines.names), cores=1, memory_mb=700, host=machines.here)
        self._machines = machines

    def machine(self, name: str) -> tuple[str, Sequence[str]]:
        """As `EmbeddedSpark.machine`."""
        if name == "master":
            return self.host, ()
        k = int(name.removeprefix("worker"))
        return self._machines.there[k], (shutil.which("ip") or "ip", "netns", "exec", self._machines.names[k])
