"""A shard of a dataflow: which of how many it is, and the port through which it meets the others.

Always: all shards run the same plans and are asked the same things in the same order, and meet in rounds, each of which
takes one message from every shard to every other; what data decides and the others must know is agreed in a round. A
step or a question that fails in one shard fails in all of them, in one and the same round, and the last round of each
says that every shard has come through: who hears of it knows that all have. Called by the dataflow's graph and nodes;
the port is the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.exchange_codec import NOTHING, Message
from headrace.engine.batch.updates import Int64s
from headrace.engine.errors import HeadraceError, InvariantBroken

_HEAD = 4
"""Words before a message: number of the round, what it is, what it is about, a value."""

_ROWS, _VALUE, _THROUGH, _GAVE_UP = range(4)
_FAILED, _OVERFLOWED = range(2)


class ShardFailed(HeadraceError):
    """Another shard failed at what all do together."""

    code = "shard"


class Port(Protocol):
    """What carries messages between the shards."""

    def exchange(self, out: Sequence[Message]) -> Sequence[Message]:
        """Send `out[k]` to shard k, for all but this one, and return what each shard sent here, [] for this one.

        Returns once all messages are in; they are the caller's, and begin at multiples of 64 bytes. A message has at
        least one buffer. Raises HeadraceError, and from then on always, once a shard cannot be reached.
        """


class Exchanged(NamedTuple):
    """What each shard sent here, whether any marked what it sent, and what all together have counted."""

    messages: Sequence[Message]
    marked: bool
    counted: int


class Shard:
    """Shard `index` of `count`. Single writer: the dataflow that it was handed to."""

    def __init__(self, index: int = 0, count: int = 1, port: Port | None = None) -> None:
        if not 0 <= index < count or (port is None and count > 1):
            raise InvariantBroken("no such shard", index=index, count=count)
        self.index = index
        self.count = count
        self._port = port
        self._round = 0
        self._together = False

    @property
    def is_alone(self) -> bool:
        """True if there is no other."""
        return self.count == 1

    @property
    def holds_the_whole(self) -> bool:
        """True for the shard to which rows without key columns belong."""
        return self.index == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is done within is done by all shards, or by none: raises in all if it raises in one.

        Raises DiffOverflow where that is what another raised, ShardFailed for anything else.
        """
        if self.is_alone:
            yield
            return
        if self._together:
            raise InvariantBroken("one thing is done together at a time", shard=self.index)
        self._together = True
        try:
            yield
        except BaseException as error:
            if self._together:
                self._meet(_GAVE_UP, _OVERFLOWED if isinstance(error, DiffOverflow) else _FAILED, _said(error))
            raise
        else:
            self._meet(_THROUGH, 0)
        finally:
            self._together = False

    def exchange(self, about: int, parts: Sequence[Message], *, marked: bool = False, counted: int = 0) -> Exchanged:
        """Send `parts[k]` to shard k, with what was counted here.

        `about`: names the edge, alike in all shards.
        """
        found = self._meet(_ROWS, about, parts=parts, value=counted << 1 | int(marked))
        told = [_words(m[0])[3] for m in found if m]
        return Exchanged(
            [m[1:] for m in found], marked or any(t & 1 for t in told), counted + sum(t >> 1 for t in told)
        )

    def gathered(self, value: int) -> Sequence[int]:
        """The value that each shard gave, by shard."""
        if self.is_alone:
            return [value]
        found = self._meet(_VALUE, 0, value=value)
        return [value if k == self.index else int(_words(m[0])[3]) for k, m in enumerate(found)]

    def agree(self, value: int, how: Callable[[Sequence[int]], int] = max) -> int:
        """What `how` (max, min, sum) makes of the values of all shards."""
        return value if self.is_alone else how(self.gathered(value))

    def every(self, *, holds: bool) -> bool:
        """True if it holds in every shard."""
        return bool(self.agree(int(holds), min))

    def union(self, values: Int64s) -> Int64s:
        """The distinct values of all shards, ascending."""
        if self.is_alone:
            return np.unique(values)
        message = [np.ascontiguousarray(values)] if len(values) else NOTHING
        found = self.exchange(0, [message] * self.count).messages
        return np.unique(np.concatenate([values, *(np.frombuffer(b, np.int64) for m in found for b in m)]))

    def summed(self, values: Int64s) -> Int64s:
        """The sums over all shards, each of which has as many values."""
        if self.is_alone or not values.size:
            return values
        found = self.exchange(0, [[np.ascontiguousarray(values)]] * self.count).messages
        others = (np.frombuffer(b, np.int64).reshape(values.shape) for message in found for b in message)
        return sum(others, values)

    def _meet(
        self, kind: int, about: int, text: str = "", *, parts: Sequence[Message] | None = None, value: int = 0
    ) -> Sequence[Message]:
        """One round. Raises what another shard failed with, after which nothing more is said of this."""
        assert self._port is not None
        if not self._together:
            raise InvariantBroken("shards meet only in what they do together", shard=self.index)
        self._round += 1
        head = np.array([self._round, kind, about, value], np.int64)
        out: list[Message] = []
        for k in range(self.count):
            rest = parts[k] if parts is not None else [text.encode()] if text else NOTHING
            out.append([head, *rest])
        try:
            found = self._port.exchange(out)
        except BaseException:
            self._together = False
            raise
        others = [(k, m) for k, m in enumerate(found) if k != self.index]
        gave_up = [(k, m) for k, m in others if _words(m[0])[1] == _GAVE_UP]
        if gave_up or kind == _GAVE_UP:
            self._together = False
            if gave_up and kind != _GAVE_UP:
                _raise(*gave_up[0])
            return found
        for k, message in others:
            if _words(message[0])[:3] != [self._round, kind, about]:
                self._together = False
                raise InvariantBroken(
                    "shards went different ways",
                    shard=self.index,
                    other=k,
                    here=head.tolist()[:3],
                    there=_words(message[0])[:3],
                )
        return found


def _words(head: object) -> list[int]:
    return np.frombuffer(head, np.int64, _HEAD).tolist()  # type: ignore[call-overload, no-any-return]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _raise(shard: int, message: Message) -> None:
    if _words(message[0])[2] == _OVERFLOWED:
        raise DiffOverflow
    text = bytes(message[1]).decode() if len(message) > 1 else None
    raise ShardFailed("another shard failed", shard=shard, error=text)


ALONE = Shard()
"""The only shard: it meets nobody, and nothing is done for it."""


class _Unreached:
    """The port of what is never run."""

    def exchange(self, out: Sequence[Message]) -> Sequence[Message]:
        """Raises InvariantBroken."""
        raise InvariantBroken("what is only drawn was run", shards=len(out))


def drawn(count: int) -> Shard:
    """One of `count` shards, of a dataflow that is built to be looked at and never run."""
    return Shard(0, count, _Unreached())
