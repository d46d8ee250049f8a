"""What ended the workers: which of them was killed or failed, where others only tell of its end.

Always: a worker that was killed is named, whatever the others said or could not write before it was noticed, and one that
failed is so with what it failed with. Called by the driver, once anything goes wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from engine.dataflow.exchange import ShardFailed
from engine.errors import HeadraceError
from sidecar.workers.channel import Channel, ChannelClosed
from sidecar.workers.crew import Crew, Guests, WorkerLost
from sidecar.workers.messages import opened

CONSEQUENCES = (ChannelClosed.code, ShardFailed.code)
"""Of the errors that a worker tells, those that another's end or failure brought about."""


def cause(crew: Crew | Guests, channels: Sequence[Channel], why: HeadraceError, seconds: float) -> HeadraceError:
    """What brought `why` about: of what comes to light within so long the first; `why` itself where nothing does.

    A worker that was killed, or else what one failed with, or one that ended without a word. `channels`: of the workers,
    by shard, of which nobody else reads.
    """
    if why.code not in CONSEQUENCES or isinstance(why, WorkerLost):
        return why
    until = time.monotonic() + seconds
    while True:
        codes = crew.codes()  # before channels are read: all that a worker said which has ended is there
        said = [error_in(channel) for channel in channels]
        killed = [shard for shard, code in enumerate(codes) if code is not None and code < 0]
        silent = [shard for shard, code in enumerate(codes) if code and said[shard] is None]
        failed = [shard for shard, error in enumerate(said) if error and error["code"] not in CONSEQUENCES]
        if failed and not killed:
            return failure(failed[0], said[failed[0]])
        if killed or silent:
            return crew.lost((killed or silent)[0], "a worker died")
        if None not in codes or time.monotonic() >= until:
            return why
        crew.await_end(codes, until - time.monotonic())


def error_in(channel: Channel) -> dict[str, Any] | None:
    """The error that a worker told and nobody took, if it did: its last word."""
    with suppress(ChannelClosed):  # what came before is there
        channel.read()
    heads = (opened(message)[0] for message in channel.arrived)
    return next((head["error"] for head in heads if "error" in head), None)


def failure(shard: int, told: dict[str, Any] | None) -> HeadraceError:
    """What a worker failed with, as an error of here."""
    assert told is not None
    where = {name: value for name, value in told["where"].items() if name not in ("worker", "what", "hint")}
    error = HeadraceError(told["what"], hint=told["hint"], **where, worker=shard)
    error.code = told["code"]  # type: ignore[misc]
    return error
