"""Recursive groups that are late in several workers: one of them tells of each.

A group that is kept by state is held by one worker, which alone works on it between two steps; at a loop all work, in the same
portions. Invariant: what a group comes to is published by a step, as all that workers make. Called by the driver of workers, and
by each of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from typing import Any

from headrace.engine.batch.exchange_codec import Message
from headrace.engine.recursion.late import Standing
from headrace.sidecar.execution.dataflow_host import Flow, LateFacts
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.workers import messages
from headrace.sidecar.execution.workers.messages import A, Command, Question

Told = Sequence[Sequence[Any]]
"""Of each late group the fields of Standing, and its views."""


def late_in(flow: KeptDataflow) -> Told:
    """Those of a worker's dataflow."""
    return [[*facts.standing, sorted(facts.views)] for facts in flow.late_groups()]


class LateInWorkers(ABC):
    """That part of a `Flow` in several processes. `frontier`: at which it began, where it began beside another."""

    def __init__(self, frontier: int) -> None:
        self._began = frontier
        self._late: Sequence[LateFacts] = ()

    def limit_steps(self, work: int) -> None:
        """As `Flow.limit_steps`."""
        self._tell_all(messages.LimitSteps(work))

    @property
    def is_late(self) -> bool:
        """As `Flow.is_late`."""
        return bool(self._late)

    def evaluate(self, work: int) -> bool:
        """As `Flow.evaluate`."""
        self.told_late([told.late for told, _ in self._ask(messages.Evaluate(work))])
        return any(facts.standing.ended for facts in self._late)

    def late_groups(self) -> Sequence[LateFacts]:
        """As `Flow.late_groups`."""
        return self._late

    def turned_behind(self, beside: Flow) -> Set[str]:
        """As `Flow.turned_behind`."""
        assert isinstance(beside, LateInWorkers), "it began beside this one"
        turned = sorted(_all_of(self._ask(messages.TurnedSince(beside._began))))
        return _all_of(beside._ask(messages.ReadersOf(turned))) if turned else frozenset()

    def told_late(self, shards: Sequence[Told]) -> None:
        """What each worker told last."""
        self._late = [LateFacts(Standing(*standing), frozenset(views)) for told in shards for *standing, views in told]

    @abstractmethod
    def _tell_all(self, command: Command, parts: Sequence[Message] = ()) -> None:
        """Have each worker do it."""

    @abstractmethod
    def _ask(self, question: Question[A], parts: Sequence[Message] = ()) -> list[tuple[A, list[Message]]]:
        """What each worker answers."""


def _all_of(answers: Sequence[tuple[messages.Named, Sequence[Message]]]) -> Set[str]:
    return {name for told, _ in answers for name in told.names}


__all__ = ["LateInWorkers", "late_in"]
