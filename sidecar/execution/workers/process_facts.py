"""What the system of this machine tells of a process: state, processor time, memory, and how it ended.

Always: a process that is gone, or a system without /proc, gives nothing and raises nothing. Called by the pool of this
machine's workers and, on another machine, by the supervisor beside a worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

_HZ = os.sysconf("SC_CLK_TCK")
_MEMORY = ("VmRSS", "VmHWM", "RssAnon", "RssFile")


def stat_of(pid: int | None) -> list[str]:
    """What this machine's system tells of a process, from its state on; nothing where it does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_of(stat: Sequence[str]) -> float | None:
    """Processor time in what `stat_of` gave; None where it gave nothing, or the process is stopped."""
    return None if not stat or stat[0] in "TtZX" else (int(stat[11]) + int(stat[12])) / _HZ


def is_runnable(stat: Sequence[str]) -> bool:
    """Whether the process would go on at once if the machine let it."""
    return list(stat[:1]) in (["R"], ["D"])


def memory_of(process: int | str) -> Mapping[str, int]:
    """VmRSS, VmHWM, RssAnon, RssFile of a process of this machine, in bytes; nothing where the system does not tell."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as status:
            lines = dict(line.split(":", 1) for line in status if ":" in line)
    except OSError:
        return {}
    return {name: int(lines[name].split()[0]) * 1024 for name in _MEMORY if name in lines}


def named_exit(code: int | None) -> str | int | None:
    """An exit code as errors tell it: the signal's name where it was one."""
    return signal.Signals(-code).name if code is not None and code < 0 else code
