"""What a line of the reclock log says: a run of epochs, and which transactions of one source they are.

Always: a line holds what it was written with, or is refused, by its checksum. Of epochs that a checkpoint holds no more is kept
in memory than which there are, and which transactions. The reclock writes and reads them.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from headrace.connectors.commit_place import KINDS, CommitPlace
from headrace.connectors.source import Positions
from headrace.engine.errors import HeadraceError
from headrace.sidecar.state.filesystem import Buffer
from headrace.sidecar.state.positions import read_positions, written_positions
from headrace.sidecar.transactions.model import EpochKind
from headrace.sidecar.transactions.partial import Place

FORMAT = 4


class ReclockError(HeadraceError):
    """The log of bindings cannot be read, written or followed."""

    code = "reclock"


@dataclass(frozen=True)
class BoundTransaction:
    """What one epoch is: a transaction of `source` by `id` and `place`, committed at `commit_us` (µs since 1970 UTC)."""

    source: str
    kind: EpochKind
    id: int
    place: CommitPlace
    commit_us: int


@dataclass(frozen=True)
class Binding:
    """Epochs first … first + len(stamps) - 1, and the source's next offsets once they are in. `starts`, `limits`: the first and
    the next offset in each partition of rows of an incremental snapshot, which tell these rows from others. `passed`: records
    that were passed over in these epochs, and perhaps in later ones: dead letters and records under `skip:`.
    """

    first: int
    stamps: tuple[BoundTransaction, ...]
    positions: Positions
    limits: Positions = field(default_factory=dict)
    starts: Positions = field(default_factory=dict)
    passed: tuple[Place, ...] = ()

    @property
    def source(self) -> str:
        """The one source of this run of epochs."""
        return self.stamps[0].source

    @property
    def epochs(self) -> range:
        """What it binds."""
        return range(self.first, self.first + len(self.stamps))

    def line(self) -> bytes:
        """The binding as a line of the log."""
        body = {
            "v": FORMAT,
            "first": self.first,
            "source": self.source,
            "kind": self.stamps[0].kind,
            "place": self.stamps[0].place.kind,
            "ids": [[s.id, s.place.order, s.commit_us] for s in self.stamps],
            "positions": written_positions(self.positions),
            **(
                {"limits": written_positions(self.limits), "starts": written_positions(self.starts)}
                if self.limits
                else {}
            ),
            **({"passed": self.passed} if self.passed else {}),
        }
        return _sealed(orjson.dumps(body))

    @classmethod
    def parse(cls, line: bytes) -> Binding:
        """The binding of a line. Raises ValueError, KeyError or TypeError for a torn or altered one."""
        return cls.of(body_of(line))

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Binding:
        """The binding of a line's body. Raises ValueError, KeyError or TypeError for anything else."""
        kind, place = EpochKind(body["kind"]), KINDS[body["place"]]
        stamps = tuple(BoundTransaction(body["source"], kind, i, place(n), at) for i, n, at in body["ids"])
        here, limits, starts = (read_positions(body.get(name, {})) for name in ("positions", "limits", "starts"))
        passed = tuple((t, p, o) for t, p, o in body.get("passed", ()))
        return cls(body["first"], stamps, here, limits, starts, passed)


class Past:
    """What a log says of epochs that a checkpoint holds, in columns: a line as an object takes a hundred times the room.
    `runs`: the epochs that it binds.
    """

    def __init__(self) -> None:
        self.runs: list[range] = []
        self._transactions: dict[str, tuple[array[int], array[int]]] = {}

    def add(self, body: Mapping[str, Any]) -> None:
        """The next line's. Raises ValueError, KeyError or TypeError for one that is none."""
        first, stamps = body["first"], body["ids"]
        if self.runs and self.runs[-1].stop == first:
            self.runs[-1] = range(self.runs[-1].start, first + len(stamps))
        else:
            self.runs.append(range(first, first + len(stamps)))
        if body["kind"] not in OF_NO_TRANSACTION:
            ids, orders = self._transactions.setdefault(body["source"], (array("q"), array("q")))
            for id_, order, _ in stamps:
                ids.append(id_)
                orders.append(order)

    def transactions(self, source: str) -> Iterable[tuple[int, int]]:
        """(id, order of its place) of a source's transactions, oldest first."""
        return zip(*self._transactions.get(source, ((), ())), strict=True)


Counted = tuple[str, bool]
OF_NO_TRANSACTION = frozenset({EpochKind.REPAIR, EpochKind.INCREMENTAL, EpochKind.RESYNC, EpochKind.MARKER})
"""Kinds of epochs that are no transaction of the source."""


def body_of(line: bytes) -> dict[str, Any]:
    """What a line holds. Raises ValueError, KeyError or TypeError for a torn or altered one."""
    # the first format's lines were bare JSON
    body: dict[str, Any] = orjson.loads(line if line.startswith(b"{") else _unsealed(line))
    if body["v"] != FORMAT:
        raise ReclockError("the reclock log has another format", found=body["v"], known=FORMAT,
                           hint="run the version of headrace that wrote it")  # fmt: skip
    return body


def lines(data: Buffer) -> Iterator[bytes]:
    """The lines of a log, each with its line end; a torn last one may lack it."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        yield data[at:end]
        at = end


def counted(source: str, kind: str) -> Counted:
    """Among which epochs of a log one counts: what is no transaction must not push those out by which repetitions are known."""
    return source, kind in OF_NO_TRANSACTION


def kept(data: Buffer, before: int, keep: int) -> Iterator[tuple[slice, Mapping[str, Any]]]:
    """The lines of a log that stay when it is trimmed, the last one first: those with an epoch from `before` on, and before it
    each source's newest `keep` epochs of transactions and as many others. For each where it lies and what it holds.
    """
    newer = Counter[Counted]()
    end = len(data)
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        body = body_of(data[start:end])
        of, stop = counted(body["source"], body["kind"]), body["first"] + len(body["ids"])
        if stop > before or newer[of] < keep:
            yield slice(start, end), body
        newer[of] += max(0, min(stop, before) - body["first"])
        end = start


def _sealed(text: bytes) -> bytes:
    """A line: eight hexadecimal digits of the text's CRC-32, the text."""
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _unsealed(line: bytes) -> bytes:
    """The text of a whole line. Raises ValueError where it is not as it was written."""
    if line != _sealed(line[9:-1]):
        raise ValueError("the checksum is of another line")
    return line[9:-1]


def from_epoch(binding: Binding, frontier: int) -> Binding:
    """A binding without its epochs < frontier."""
    skip = max(0, frontier - binding.first)
    return replace(binding, first=binding.first + skip, stamps=binding.stamps[skip:])


def of_one_kind(stamps: Sequence[BoundTransaction]) -> list[list[BoundTransaction]]:
    """Runs of stamps of one kind; each cut or chunk is a run of its own, as its offsets are what binds it."""
    out: list[list[BoundTransaction]] = []
    for stamp in stamps:
        if out and out[-1][-1].kind == stamp.kind not in (EpochKind.MICROBATCH, EpochKind.INCREMENTAL):
            out[-1].append(stamp)
        else:
            out.append([stamp])
    return out
