"""Loopback ports: picked once for a folder and kept, because stored connector configurations name them.

It always holds that the ports of one folder are distinct and that they lie below the range the kernel hands out to
outgoing connections, so that no client can sit on one while the stack is down. Called by the stack and its parts.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from headrace.sidecar.devstack.errors import DevstackError

_LOWEST = 10_240
_HIGHEST = 32_768
_TRIES = 200
HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else TIME_WAIT of the last run counts as taken
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def is_open(port: int, host: str = HOST) -> bool:
    """Whether a server answers on this port, of loopback unless another host is given."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 0.5):
        return True
    return False


def _ephemeral_floor() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return _HIGHEST


def pick(count: int) -> list[int]:
    """`count` distinct ports that are free now."""
    highest = min(_ephemeral_floor(), _HIGHEST)
    lowest, highest = (_LOWEST, highest) if highest - _LOWEST > 1_000 else (_LOWEST, 60_000)
    chosen: set[int] = set()
    for _ in range(_TRIES):
        port = lowest + secrets.randbelow(highest - lowest)
        if is_free(port):
            chosen.add(port)
        if len(chosen) == count:
            return sorted(chosen)
    raise DevstackError(f"no {count} free ports on {HOST}", hint="end what listens there")


def kept(file: Path, names: Sequence[str]) -> dict[str, int]:
    """The ports of `names` as `file` holds them; the first call picks and writes them.

    Raises DevstackError when another program listens on one of them: changing a port would silently break every
    connector whose stored configuration names it.
    """
    if file.exists():
        ports: dict[str, int] = json.loads(file.read_text())
        for name in names:
            if name in ports and not is_free(ports[name]):
                raise DevstackError(
                    "a port of the embedded stack is taken by another program",
                    part=name,
                    port=ports[name],
                    file=file,
                    hint="end that program, or start in a fresh folder",
                )
    else:
        ports = {}
    missing = [name for name in names if name not in ports]
    if missing:
        ports.update(zip(missing, pick(len(missing)), strict=True))
        file.write_text(json.dumps(ports, indent=1) + "\n")
    return {name: ports[name] for name in names}
