"""Both sides of a benchmark as processes that take turns: ours, and the peer's forms of the same session.

Always: every command goes to all sides, one at a time, who goes first changes from command to command, and what went in
and the checksums of what came out must be equal, or it raises Unequal. Where the peer cannot be built only ours
runs. Called by the benches.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

OURS = "ours"


class Unequal(Exception):
    """The two sides did not send the same updates."""


class Told(NamedTuple):
    """A side's answer: seconds of each lap, and resident bytes at its end. `ways`: how each lap's changes were followed."""

    rows: int
    wall: list[float]
    cpu: list[float]
    checksum: str
    out: int
    bytes: int
    ways: Sequence[str] = ()


Round = Mapping[str, Told]
"""Side → answer, of one command."""


class Side:
    """One process that serves a session."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)
        self._process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.base = int(self._answer()["bytes"])

    def ask(self, verb: str, prefix: Path | str = "", number: int = 1) -> Told:
        """One command; blocks until it is answered."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb} {prefix} {number}\n")
        self._process.stdin.flush()
        return Told(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)} ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process and wait for it."""
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


class Contest:
    """The sides of one session."""

    def __init__(self, sides: Mapping[str, Side]) -> None:
        self.sides = sides
        self._turn = 0

    def ask(self, verb: str, prefix: Path | str = "", number: int = 1) -> Round:
        """The same command to every side. Raises Unequal."""
        order = list(self.sides)
        shift = self._turn % len(order)
        self._turn += 1
        found = {name: self.sides[name].ask(verb, prefix, number) for name in order[shift:] + order[:shift]}
        # How many updates came out is not compared: a side may send one row in parts, which add up alike.
        sums = {name: (told.rows, told.checksum) for name, told in found.items()}
        if len(set(sums.values())) > 1:
            raise Unequal(f"{verb} {Path(prefix).name}: {sums}")
        return found


@contextmanager
def contest(
    session: str, peers: Mapping[str, str], binary: Path | None, others: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Contest]:
    """Our `session` against the peer's sessions `peers` (side → session) and `others` (side → command), each in a process of
    its own."""
    commands: dict[str, Sequence[str]] = {OURS: own(session)}
    if binary is not None:
        commands |= {side: [str(binary), form] for side, form in peers.items()}
    commands |= others or {}
    with contest_of(commands) as found:
        yield found


def own(session: str) -> list[str]:
    """The command that serves one of our sessions."""
    return [sys.executable, "-m", "tests.bench.peers.ours", session]


@contextmanager
def contest_of(commands: Mapping[str, Sequence[str]]) -> Iterator[Contest]:
    """The sides that some commands serve."""
    sides: dict[str, Side] = {}
    try:
        for name, command in commands.items():
            sides[name] = Side(command)
        yield Contest(sides)
    finally:
        for side in sides.values():
            side.close()


def rate(rounds: Sequence[Round], side: str, count: float, clock: str = "cpu") -> float | None:
    """The median round's `count` a second; None where that side did not run."""
    if side not in rounds[0]:
        return None
    return float(statistics.median(count / sum(getattr(r[side], clock)) for r in rounds))


def lap(
    rounds: Sequence[Round], side: str, share: float = 0.5, clock: str = "cpu", every: slice = slice(None)
) -> float | None:
    """Microseconds of the lap at `share` of all rounds' laps (`every` of a round's); None where that side did not run."""
    if side not in rounds[0]:
        return None
    laps = sorted(one for r in rounds for one in getattr(r[side], clock)[every])
    return float(laps[min(int(len(laps) * share), len(laps) - 1)] * 1e6)


def times(value: float | None, factor: float) -> float | None:
    """A goal that is so many times the peer's figure."""
    return None if value is None else value * factor
