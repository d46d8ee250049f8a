"""What the driver tells and asks a worker, and what it answers: one class a message.

Always: a message's class is named in the head of its frame, and its fields are the rest of the head; rows and plans follow as
parts. A `Question` has one answer, of the class that it names; a `Command` has none. The driver sends them, `worker` does them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from headrace.engine.batch.exchange_codec import Message
from headrace.sidecar.execution.workers.protocol import message, opened

A = TypeVar("A")


@dataclass(frozen=True)
class Done:
    """The answer that holds nothing, or parts alone."""


@dataclass(frozen=True)
class Taken:
    """Which views changed, two parts each; the worker's frontier, and the processor seconds of its process. `late`: see
    `workers.late`.
    """

    names: Sequence[str]
    frontier: int
    cpu: float
    late: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Hydrated:
    """How many updates are computed, and of how many; None where all are."""

    at: Sequence[int] | None


@dataclass(frozen=True)
class FactsTold:
    """By arrangement its rows, bytes, readers and views; `exchanged`: the fields of ExchangeFacts, where there are others."""

    arrangements: Mapping[str, Any]
    exchanged: Sequence[Any] | None = None


@dataclass(frozen=True)
class Resumed:
    """The arrangements that were recovered. `late`: as in `Taken`."""

    names: Sequence[str]
    late: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Evaluated:
    """`late`: as in `Taken`."""

    late: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Named:
    """Names of what was asked for."""

    names: Sequence[str]


@dataclass(frozen=True)
class Held:
    """The arrangements that are whole and are held for a checkpoint."""

    names: Sequence[str]


@dataclass(frozen=True)
class RowsFound:
    """Which columns of the rows that follow have values that were not sent."""

    columns: Sequence[int]


@dataclass(frozen=True)
class Written:
    """The batch files of a checkpoint, or why the store is `away`; `store`: the fields of Counts."""

    store: Sequence[int]
    files: Mapping[str, Sequence[Sequence[Any]]] | None = None
    away: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Command:
    """Is done, and not answered."""


@dataclass(frozen=True)
class Question(Generic[A]):
    """Is answered by one `answer`."""

    answer: ClassVar[type[Any]]

    def answered(self, head: Mapping[str, Any]) -> A:
        """The answer, of the head of its frame."""
        found: A = self.answer(**head)
        return found


@dataclass(frozen=True)
class Push(Command):
    """Changes of a table follow; `columns`: those with values that were not sent."""

    table: str
    columns: Sequence[int]


@dataclass(frozen=True)
class PushErrors(Command):
    """Errors of a table come or go at an epoch: by text, how many more there are."""

    table: str
    errors: Mapping[str, int]
    epoch: int


@dataclass(frozen=True)
class Step(Command):
    """Complete every epoch before `upper`."""

    upper: int


@dataclass(frozen=True)
class LimitSteps(Command):
    """Have recursive groups leave steps in which they do more counted work than `work`; 0: none does."""

    work: int


@dataclass(frozen=True)
class AdvanceSince(Command):
    """Forget what was before `epoch`."""

    epoch: int


@dataclass(frozen=True)
class Exert(Command):
    """Merge so many updates, where nothing else is to be done."""

    fuel: int


@dataclass(frozen=True)
class TrimMemory(Command):
    """Give memory back to the system."""


@dataclass(frozen=True)
class Build(Command):
    """Render the plans that follow."""


@dataclass(frozen=True)
class TakeIn(Command):
    """Exchange rows that the workers keep, of these tables: each row goes to the shard of its key."""

    tables: Sequence[str]


@dataclass(frozen=True)
class Forget(Command):
    """Let go of runs of rows that are kept."""

    runs: Sequence[int]


@dataclass(frozen=True)
class Take(Question[Taken]):
    """What did the views emit since the last take?"""

    answer = Taken


@dataclass(frozen=True)
class Evaluate(Question[Evaluated]):
    """Let the late groups do so much work each: how do they stand?"""

    answer = Evaluated
    work: int


@dataclass(frozen=True)
class TurnedSince(Question[Named]):
    """Which nodes became late, or came back, since a frontier? By fingerprint."""

    answer = Named
    frontier: int


@dataclass(frozen=True)
class ReadersOf(Question[Named]):
    """Which views read one of these nodes?"""

    answer = Named
    fingerprints: Sequence[str]


@dataclass(frozen=True)
class Snapshot(Question[Done]):
    """What does a view hold at an epoch? Two parts: rows and errors."""

    answer = Done
    view: str
    as_of: int


@dataclass(frozen=True)
class LookUp(Question[Done]):
    """Which rows of a table stand under the keys that follow?"""

    answer = Done
    table: str


@dataclass(frozen=True)
class Hydrate(Question[Hydrated]):
    """Compute the next part of what the plans need: how far is it?"""

    answer = Hydrated


@dataclass(frozen=True)
class Facts(Question[FactsTold]):
    """What do the arrangements hold?"""

    answer = FactsTold


@dataclass(frozen=True)
class Recover(Question[Resumed]):
    """Read these batch files of a checkpoint at `frontier`, which `count` workers wrote."""

    answer = Resumed
    frontier: int
    files: Mapping[str, Sequence[Sequence[Any]]]
    count: int


@dataclass(frozen=True)
class Hold(Question[Held]):
    """Hold what is there now until it is written: which arrangements are whole?"""

    answer = Held


@dataclass(frozen=True)
class BeginBeside(Question[Done]):
    """Serve another dataflow, of this number, beside this one; the tables redeclared follow."""

    answer = Done
    number: int


@dataclass(frozen=True)
class BeginIntake(Question[Done]):
    """Read a part of a source over the channel of this name; what reads follows."""

    answer = Done
    name: str


@dataclass(frozen=True)
class RowsOf(Question[RowsFound]):
    """Which rows of a table do the references that follow mean?"""

    answer = RowsFound
    table: str


@dataclass(frozen=True)
class HandOver(Question[Done]):
    """What do these runs of kept rows hold? A part each: an Arrow file."""

    answer = Done
    runs: Sequence[int]


@dataclass(frozen=True)
class TakeOver(Question[Done]):
    """Keep these runs of other workers, whose files follow; runs of your own have numbers greater than `last`."""

    answer = Done
    runs: Sequence[int]
    last: int


@dataclass(frozen=True)
class Change(Question[Done]):
    """Take other plans, which follow, and of these arrangements what is held by the dataflow `beside`."""

    answer = Done
    beside: int | None
    names: Sequence[str]


@dataclass(frozen=True)
class Write(Question[Written]):
    """Write those of the arrangements held, as write `number`. It goes to the thread that writes."""

    answer = Written
    names: Sequence[str]
    number: int


Told = (
    Push | PushErrors | Step | LimitSteps | AdvanceSince | Exert | TrimMemory | Build | Take | Snapshot | LookUp | Hydrate | Facts
    | Recover | Hold | BeginBeside | BeginIntake | TakeIn | RowsOf | HandOver | TakeOver | Forget | Change | Evaluate
    | TurnedSince | ReadersOf
)  # fmt: skip
"""What a worker is told and asked over the channel of its dataflow."""
Answer = Done | Taken | Hydrated | FactsTold | Resumed | Held | RowsFound | Written | Evaluated | Named
KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in (*Told.__args__, Write)}


def sent_as(said: Command | Question[Any], parts: Sequence[Message] = ()) -> Message:
    """The frame of a message."""
    return message({"do": type(said).__name__, **vars(said)}, parts)


def read_as(found: Message) -> tuple[Told | Write, list[Message]]:
    """The message of a frame, and its parts. Raises KeyError for one of another program."""
    head, parts = opened(found)
    said: Told | Write = KINDS[head.pop("do")](**head)
    return said, parts
