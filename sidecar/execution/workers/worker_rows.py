"""The driver's side of rows that workers keep: asks for them, has them exchanged, forgotten, and handed over to other workers.

Invariant: a worker lets go of a run once the driver refers to no part of it; a run keeps its number whichever workers keep it,
and the number says which of them does. Called by the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from headrace.engine.batch.exchange_codec import Message
from headrace.engine.batch.updates import Upserts
from headrace.engine.schema import Schema
from headrace.sidecar.execution.workers import messages
from headrace.sidecar.execution.workers.kept_rows import in_order, placed_in, truncates_of, wanted_out
from headrace.sidecar.execution.workers.kept_run import put_aside
from headrace.sidecar.execution.workers.messages import Command, Question
from headrace.sidecar.transactions.references import HandedRuns, KeptRuns

AT_ONCE = 64
"""So many runs are handed over at a time: each is of one poll."""

Answers = Callable[[Question[Any]], Sequence[tuple[Any, list[Message]]]]


class Tell(Protocol):
    """Leaves a message to be written to a worker."""

    def __call__(self, shard: int, said: Command | Question[Any], parts: Sequence[Message] = ()) -> None:
        """The message, and its parts."""


@dataclass
class WorkerRows:
    """`kept`: the runs that are referred to. `answers`: what all workers answer to a question that each was asked."""

    count: int
    tell: Tell
    answers: Answers
    kept: KeptRuns = field(default_factory=KeptRuns)

    def of(self, table: str, upserts: Upserts, schema: Schema) -> Upserts:
        """The changes that references mean, with their rows in this process."""
        for shard, parts in enumerate(wanted_out(upserts, self.count)):
            self.tell(shard, messages.RowsOf(table), parts[:1])
        told = self.answers(messages.RowsOf(table))
        found = [placed_in(one.columns, parts, schema) for one, parts in told if parts]
        truncates = truncates_of(upserts, schema)
        return replace(in_order([*found, *([truncates] if truncates else [])]), fill_from=upserts.fill_from)

    def take_in(self, changes: Mapping[str, Upserts]) -> None:
        """Have the workers exchange rows that they keep."""
        wanted = [wanted_out(upserts, self.count) for upserts in changes.values()]
        for shard in range(self.count):
            self.tell(shard, messages.TakeIn(list(changes)), [p for parts in wanted for p in parts[shard]])

    def let_go(self) -> None:
        """Have the workers let go of runs that nobody refers to."""
        for shard, numbers in enumerate(self._dealt(self.kept.take_gone())):
            if numbers:
                self.tell(shard, messages.Forget(numbers))

    def hand_over(self, folder: Path) -> HandedRuns:
        """Every run that is referred to, in files of `folder` without a name; the workers go on to keep them. Raises
        SpillError."""
        self.let_go()
        files: dict[int, pa.Buffer] = {}
        for some in _in_turn(self.kept.numbers):
            dealt = self._dealt(some)
            for shard, numbers in enumerate(dealt):
                self.tell(shard, messages.HandOver(numbers))
            for numbers, (_, parts) in zip(dealt, self.answers(messages.HandOver([])), strict=True):
                for number, part in zip(numbers, parts, strict=True):
                    files[number] = put_aside(part[0], folder / "handing over")
        return HandedRuns(self.kept, files)

    def take_over(self, handed: HandedRuns) -> None:
        """Have these workers keep what others have kept. Raises SpillError."""
        self.kept = handed.kept
        for some in _in_turn(sorted(handed.files)) if handed.files else [[]]:
            for shard, numbers in enumerate(self._dealt(some)):
                files: list[Message] = [[handed.files[number]] for number in numbers]
                self.tell(shard, messages.TakeOver(numbers, handed.kept.last), files)
            self.answers(messages.TakeOver([], -1))

    def _dealt(self, numbers: Sequence[int]) -> list[list[int]]:
        """By worker the runs that it keeps."""
        return [[number for number in numbers if number % self.count == shard] for shard in range(self.count)]


def _in_turn(numbers: Sequence[int]) -> Iterator[list[int]]:
    left = iter(numbers)
    while some := list(islice(left, AT_ONCE)):
        yield some
