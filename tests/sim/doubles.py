"""The doubles of a life in the places of the libraries, of the sinks and of what else a sidecar is wired with.

Always: whoever runs now is who a double serves: it stands at that process's doors. Called by the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.commands import MemoryCommands
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.sink import SinkState
from headrace.sidecar.config.config import PostgresSinkConfig, Settings, SinkConfig
from headrace.sidecar.runtime import loop
from headrace.sidecar.wiring import build, intakes
from tests.sim.clients import Clients, DeadLetters
from tests.sim.contracts import put_in_place
from tests.sim.database import DatabaseSink

if TYPE_CHECKING:
    from tests.sim.world import World


@contextmanager
def in_place(world: World) -> Iterator[None]:
    """While a life is played."""
    made = Clients(lambda: world.current[-1])
    with pytest.MonkeyPatch.context() as patch:
        put_in_place(patch, made, lambda: world.clock, lambda s: world.current[-1].sleep(s))
        patch.setattr(build, "make_sink", lambda *of: _sink(world, *of))
        patch.setattr(intakes, "make_dead_letters", lambda _: DeadLetters(world.current[-1], world.letters))
        patch.setattr(
            build, "make_commands", lambda _: MemoryCommands()
        )  # lives with a log of commands are not drawn yet
        patch.setattr(build, "failpoints", lambda _: world.current[-1].door)
        patch.setattr(loop.Runtime, "reconcile", _noting(loop.Runtime.reconcile))
        for more in world.patches:
            more(patch)
        try:
            with world.limits.in_place(patch):
                yield
        finally:
            if world.host is not None:
                world.host.close()


def _noting(real: Callable[..., None]) -> Callable[..., None]:
    """Notes which sinks a process gives everything, though they have something."""

    def noted(run: Any, writer: Any, state: Any, *, everything: bool) -> None:
        writer.process.doubts[writer.name] = everything and state.frontier is not None
        real(run, writer, state, everything=everything)

    return noted


def _sink(world: World, settings: Settings, config: SinkConfig, reached: Any) -> Any:
    process = world.current[-1]
    if isinstance(config, PostgresSinkConfig):
        return DatabaseSink(config.name, world.database, process)
    each = config.granularity == "transaction"
    sink = KafkaSink(
        config.name, {"bootstrap.servers": "127.0.0.1:1"}, config.topic_prefix, sidecar="sim",
        each=each, sleep=process.sleep, now=process.now, reached=reached,
    )  # fmt: skip
    opening = sink.open

    def opened(views: Any, held: int | None = None) -> SinkState:
        state = opening(views, held)
        world.reader.each[state.generation] = each
        return state

    sink.open = opened  # type: ignore[method-assign]  # who is told which generation it has
    return sink
