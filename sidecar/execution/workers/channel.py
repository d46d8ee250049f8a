"""One end of a socket that carries messages of buffers: framed by counts, written and read in vectors, never copied.

Always: a message arrives whole and in order or not at all, its buffers at multiples of 64 bytes of fresh memory; nothing
here waits, so that two ends may send each other more than a socket holds. Called by ports and the driver through `moved`.
"""

from __future__ import annotations

import errno
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.engine.batch.exchange_codec import Message
from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.tls import TlsEnd

_VECTOR = 512
"""Buffers a system call may take at most, everywhere."""
_ALIGNED = 64
_ROOM = 1 << 22
"""What a socket is asked to hold, in bytes; the system may give less."""
_CUT = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
"""What the system says of a connection whose other end it cannot reach any more: no process has closed it."""


class ChannelClosed(HeadraceError):
    """The other end is gone."""

    code = "worker"


class Channel:
    """One end, with what is still to be written and what is being read. `peer`: how errors call the other end; `sent`: bytes
    that were given to be written so far."""

    def __init__(self, end: socket.socket | TlsEnd, peer: int) -> None:
        self.peer = peer
        self.sent = 0
        self._end = end
        self._writing: deque[memoryview] = deque()
        self._reading: list[memoryview] = []
        self._head = bytearray(8)
        self._sizes: np.ndarray[Any, np.dtype[np.int64]] | None = None
        self._message: list[memoryview] | None = None
        self.arrived: deque[Message] = deque()
        end.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, _ROOM)

    def fileno(self) -> int:
        """For poll."""
        return self._end.fileno()

    @property
    def is_writing(self) -> bool:
        """True while something is still to be written."""
        return bool(self._writing)

    def put(self, message: Message) -> None:
        """Take a message to be written; its buffers must stay as they are until they are."""
        parts = [memoryview(part).cast("B") for part in message]
        sizes = np.array([part.nbytes for part in parts], np.int64)
        self.sent += int(sizes.sum())
        self._writing.append(np.array([len(parts)], np.int64).data.cast("B"))
        self._writing.extend(part for part in (sizes.data.cast("B"), *parts) if part.nbytes)

    def write(self) -> None:
        """Write as much as the socket takes. Raises ChannelClosed."""
        while self._writing:
            some = [self._writing[k] for k in range(min(len(self._writing), _VECTOR))]
            try:
                count = self._end.sendmsg(some)
            except BlockingIOError:
                return
            except OSError as error:
                raise self._closed(error) from error
            while count and count >= self._writing[0].nbytes:
                count -= self._writing.popleft().nbytes
            if count:
                self._writing[0] = self._writing[0][count:]

    def read(self) -> None:
        """Read as much as there is; whole messages are in `arrived`. Raises ChannelClosed."""
        while True:
            if not self._reading:
                self._begin()
            try:
                count = self._end.recvmsg_into(self._reading[:_VECTOR])[0]
            except BlockingIOError:
                return
            except OSError as error:
                raise self._closed(error) from error
            if not count:
                raise ChannelClosed("a worker's channel is closed", shard=self.peer)
            full = 0
            while full < len(self._reading) and count >= self._reading[full].nbytes:
                count -= self._reading[full].nbytes
                full += 1
            del self._reading[:full]
            if count:
                self._reading[0] = self._reading[0][count:]
            while not self._reading and self._next():
                pass
            if not self._reading and self._message is None and self._sizes is None and not self._deciphered():
                return

    def _deciphered(self) -> bool:
        """Whether there is more that poll cannot tell of."""
        return isinstance(self._end, TlsEnd) and self._end.pending() > 0

    def _closed(self, error: OSError) -> ChannelClosed:
        cut = True if error.errno in _CUT else None
        return ChannelClosed("a worker's channel is closed", shard=self.peer, error=error, cut=cut)

    def _begin(self) -> None:
        self._head = bytearray(8)
        self._reading = [memoryview(self._head)]

    def _next(self) -> bool:
        """One part is read whole: go on to the part after it, unless that is the next message."""
        if self._sizes is None and self._message is None:
            count = int.from_bytes(self._head, "little")
            self._sizes = np.empty(count, np.int64)
            self._reading = [self._sizes.data.cast("B")] if count else []
            return True
        if self._message is None:
            assert self._sizes is not None
            self._message = _room(self._sizes.tolist())
            self._reading = [part for part in self._message if part.nbytes]
            return True
        self.arrived.append(self._message)
        self._message = self._sizes = None
        return False

    def close(self) -> None:
        """Close this end; the other sees it."""
        self._end.close()


def _room(sizes: Sequence[int]) -> list[memoryview]:
    """Memory for buffers of these sizes, each at a multiple of 64 bytes."""
    places = [0]
    for size in sizes:
        places.append(places[-1] + (size + _ALIGNED - 1) // _ALIGNED * _ALIGNED)
    block = np.empty(places[-1] + _ALIGNED, np.uint8)
    first = -block.ctypes.data % _ALIGNED
    return [block[first + at : first + at + n].data for at, n in zip(places, sizes, strict=False)]


def moved(
    channels: Sequence[Channel], wanted: Callable[[], bool], tick: Callable[[], None], every: float = 1.0
) -> None:
    """Write and read on all channels until all is written and `wanted` is no longer true.

    `tick` is called after every `every` seconds in which nothing moved. Raises ChannelClosed.
    """
    poll: select.poll | None = None
    while True:
        for channel in channels:
            if channel.is_writing:
                channel.write()
        writing = [channel for channel in channels if channel.is_writing]
        if not writing and not wanted():
            return
        poll = select.poll()
        for channel in channels:
            poll.register(channel.fileno(), select.POLLIN | (select.POLLOUT if channel.is_writing else 0))
        ready = dict(poll.poll(every * 1000))
        if not ready:
            tick()
        for channel in channels:
            if ready.get(channel.fileno(), 0) & ~select.POLLOUT:
                channel.read()
