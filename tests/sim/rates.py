"""How often what happens in one life: faults and crashes, each of a few orders of magnitude or never, drawn once a life.

Always: the same draw gives the same rates. Called by the world.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from headrace.sidecar.wiring.failpoints import STEPS

POINTS = (
    *(step for step in STEPS if not step.startswith("postgres") and step != "range stepped"),
    "sql connect", "sql write", "sql commit", "kafka init", "kafka send", "kafka end", "kafka fetch",
)  # fmt: skip
"""The doors that a life may have it in for: the durable steps of the sidecar itself, and what it asks of servers."""


@dataclass(frozen=True)
class Rates:
    """How often what happens, of one life: each of a few orders of magnitude, or never. `point`: a door at which something
    happens at the rate `eager`. `slow`: how often the markers of a decided transaction are not written yet when time passes."""

    nested: float
    kill: float
    power: float
    lost: float
    down: float
    full: float
    stop: float
    zombie: float
    crash: float
    wipe: float
    restore: float
    slow: float
    point: str
    eager: float

    @classmethod
    def drawn(cls, draw: random.Random) -> Rates:
        def rate(*choices: float) -> float:
            return draw.choice(choices)

        return cls(
            rate(0, 0.01, 0.05), rate(0, 0.001, 0.004), rate(0, 0.0005, 0.003), rate(0, 0, 0.01, 0.05),
            rate(0, 0, 0.02), rate(0, 0, 0, 0.02), rate(0, 0.01, 0.05), rate(0, 0, 0.0005, 0.002), rate(0, 0.01, 0.05),
            rate(0, 0, 0, 0, 0.3), rate(0, 0, 0, 0, 0.02), rate(0, 0.9, 0.9),
            draw.choice(POINTS), rate(0, 0.05, 0.3),
        )  # fmt: skip
