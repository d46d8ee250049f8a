"""What ended the workers: which of them was killed or failed, where others only tell of its end.

Always: a worker that was killed is named, whatever the others said or could not write before it was noticed, and one that
failed is so with what it failed with. Where all processes are well and a connection is not, the network was cut. Called by
the driver, once anything goes wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.engine.dataflow.shard import ShardFailed
from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed
from headrace.sidecar.execution.workers.pool import CUT_OFF, WorkerLost, WorkerPool
from headrace.sidecar.execution.workers.protocol import opened

_ANEW = "all workers were stopped; start anew from the last checkpoint"
_EVERY = 1.0
"""Seconds between two looks: what a worker says meanwhile is not waited for."""

CONSEQUENCES = (ChannelClosed.code, ShardFailed.code)
"""Of the errors that a worker tells, those that another's end or failure brought about."""


def cause(pool: WorkerPool, channels: Sequence[Channel], why: HeadraceError, seconds: float) -> HeadraceError:
    """What brought `why` about: of what comes to light within so long the first; a cut of the network where nothing does.

    The cause of a failure: a worker that was killed, else the error that one reported, else one that ended without a report.
    `channels`: shard → the worker's channel, which nobody else reads.
    """
    if why.code not in CONSEQUENCES or isinstance(why, WorkerLost):
        return why
    until = time.monotonic() + seconds
    while True:
        codes = pool.codes()  # before channels are read: all that a worker said which has ended is there
        said = [error_in(channel) for channel in channels]
        killed = [shard for shard, code in enumerate(codes) if code is not None and code < 0]
        silent = [shard for shard, code in enumerate(codes) if code and said[shard] is None]
        failed = [shard for shard, error in enumerate(said) if error and error["code"] not in CONSEQUENCES]
        if failed and not killed:
            return failure(failed[0], said[failed[0]])
        if killed or silent:
            return pool.lost((killed or silent)[0], "a worker died")
        cut = _cut(pool, said, why)
        if cut is not None or None not in codes or time.monotonic() >= until:
            where = {name: value for name, value in why.where.items() if name != "cut"}
            return cut or WorkerLost(CUT_OFF, **where, hint=_ANEW)
        pool.await_end(codes, min(_EVERY, until - time.monotonic()))


def _cut(pool: WorkerPool, said: Sequence[dict[str, Any] | None], why: HeadraceError) -> WorkerLost | None:
    """The cut of the network that the system told of to the driver, or to a worker."""
    told = [(shard, error["where"]) for shard, error in enumerate(said) if error is not None]
    for teller, where in [(why.where.get("worker"), why.where), *told]:
        other = where.get("shard")
        if not where.get("cut") or not isinstance(other, int):
            continue
        if other >= 0:
            return pool.lost(other, CUT_OFF, by="the driver" if teller is None else f"shard {teller}")
        if isinstance(teller, int):  # what it heard nothing of is the driver
            return pool.lost(teller, CUT_OFF, by="the driver")
    return None


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
