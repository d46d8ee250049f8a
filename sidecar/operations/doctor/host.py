"""This machine and the state folder: disk for two generations, open files, memory, versions.

Always: it measures through `Machine`, which tests replace; it writes nothing. Called by `examine`.
"""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.sidecar.config.config import Settings
from headrace.sidecar.operations.doctor.findings import Finding, Subject, advice, refused
from headrace.sidecar.state.batch_store import CheckpointError
from headrace.sidecar.state.checkpoint import Manifest
from headrace.sidecar.state.generation import StateError
from headrace.sidecar.wiring.run_states import newest_manifest

S = Subject.SELF
LEAST_DISK = 256 << 20
"""Free bytes below which even an empty state is in danger."""
LEAST_FILES = 4096
SHARE = 0.9
"""Of the memory that there is, the most that a budget should name."""
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_limit() -> int:
    """Bytes of memory that this process may use: the cgroup's limit, or the machine's memory."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUPS:
        try:
            return min(there, int(path.read_text()))
        except (OSError, ValueError):
            continue
    return there


def _files() -> int:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if most == resource.RLIM_INFINITY else most


@dataclass(frozen=True)
class Machine:
    """Measurements of this machine: free bytes on a folder's disk, the limit of open files, and memory."""

    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    files: Callable[[], int] = _files
    memory: Callable[[], int] = memory_limit


def check_host(settings: Settings, machine: Machine | None = None) -> list[Finding]:
    """What is wrong with this machine for this configuration."""
    at = machine or Machine()
    found, manifest = _state(settings)
    return [*found, *_disk(settings, manifest, at), *_open_files(manifest, at), *_memory(settings, at)]


def _state(settings: Settings) -> tuple[list[Finding], Manifest | None]:
    folder, quoted = settings.state, shlex.quote(str(settings.state))
    try:
        manifest = newest_manifest(settings)
    except (CheckpointError, StateError) as error:
        return [
            refused(
                S,
                "state_version",
                str(folder),
                f"{error.what} ({error.as_json()['where']})",
                "a start would be refused: run the version that wrote it, or begin with an empty state folder, which reads "
                "the topics anew",
                f"mv {quoted} {shlex.quote(f'{folder}.old')}",
            )
        ], None
    except OSError as error:
        return [
            refused(
                S,
                "state_rights",
                str(folder),
                f"it cannot be read: {error.strerror}",
                "a start would be refused",
                f"chmod -R u+rwX {quoted}",
            )
        ], None
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        return [
            refused(
                S,
                "state_rights",
                str(nearest),
                "it is not writable",
                "no checkpoint can be written",
                f"chmod u+rwx {shlex.quote(str(nearest))}",
            )
        ], manifest
    return [], manifest


def _disk(settings: Settings, manifest: Manifest | None, machine: Machine) -> Iterator[Finding]:
    nearest = next(p for p in (settings.state, *settings.state.parents) if p.exists())
    free = machine.free(nearest)
    held = 0 if manifest is None else sum(f.bytes for files in manifest.arrangements.values() for f in files)
    if free < max(held, LEAST_DISK):
        yield advice(
            S,
            "disk",
            str(nearest),
            f"{free >> 20:,} MiB are free, the state has {held >> 20:,} MiB",
            "two generations of the state must find room: a change of its batches may double it",
            f"df -h {shlex.quote(str(nearest))}; du -sh {shlex.quote(str(settings.state))}/generations/*",
        )


def _open_files(manifest: Manifest | None, machine: Machine) -> Iterator[Finding]:
    held = 0 if manifest is None else len({f.name for files in manifest.arrangements.values() for f in files})
    wanted, most = max(LEAST_FILES, 4 * held), machine.files()
    if most < wanted:
        yield advice(
            S,
            "files",
            "this process",
            f"it may open {most:,} files, the state has {held:,} batches",
            "each mapped batch is an open file, and a run ends where there are no more",
            f"ulimit -n {wanted}",
        )


def _memory(settings: Settings, machine: Machine) -> Iterator[Finding]:
    there, budget = machine.memory(), settings.config.memory.budget_mib
    wanted = int(there * 2 / 3) >> 20
    change = f"put `memory: {{budget_mib: {wanted}}}` into headrace.yaml"
    if budget is None:
        yield advice(
            S,
            "memory_budget",
            str(settings.path),
            "no `memory: {budget_mib: …}` is named",
            f"nothing bounds what is read ahead, and the system kills what needs more than {there >> 20:,} MiB; {change}",
            f"printf 'memory: {{budget_mib: {wanted}}}\\n' >> {shlex.quote(str(settings.path))}",
        )
    elif budget << 20 > SHARE * there:
        yield refused(
            S,
            "memory_limit",
            str(settings.path),
            f"the budget is {budget:,} MiB, there are {there >> 20:,} MiB",
            f"the system kills the process before it waits; {change}",
            f"sed -i -E 's/(budget_mib\"?: *)[0-9]+/\\1{wanted}/' {shlex.quote(str(settings.path))}",
        )
