"""A chain of small records in a store of objects: numbered, each made once, so that two runs never both have the next one.

Invariant: record n + 1 was written by who knew record n; once a later run has written, an earlier one writes nothing more
that counts. An answer that was lost is settled by reading back. Called by generations that lie in a store.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.sidecar.state.objects import Objects

KEPT = 4
"""Records that are left; those before them are deleted."""


class Overtaken(HeadraceError):
    """A later run has written to the state: this one has lost it."""

    code = "state"


class Behind(Exception):
    """The next record was there already, of this run or an earlier one: it is to be read first."""


@dataclass(frozen=True)
class Record:
    """One of the chain. `generation`: the run that wrote it."""

    number: int
    generation: int
    body: Mapping[str, Any]


class Register:
    """The chain under `prefix`, as one run writes it. Single writer of a process: one call at a time."""

    def __init__(self, objects: Objects, prefix: str, generation: int = 0) -> None:
        self._objects, self._prefix, self._generation = objects, f"{prefix}/", generation

    def last(self) -> Record | None:
        """The newest record. Raises OSError, ValueError for a damaged one."""
        while True:
            known = self._numbers()
            if not known:
                return None
            try:
                return self._read(known[-1])
            except FileNotFoundError:
                continue  # those after it have come meanwhile

    def append(self, body: Mapping[str, Any], after: int) -> int:
        """Write the record behind `after`; its number. Raises Behind, Overtaken, OSError; it may be written all the same
        where the answer was lost, which the next call finds."""
        number = after + 1
        head = {"generation": self._generation, "nonce": secrets.token_hex(8), "body": body}
        text = json.dumps(head).encode()
        name = self._name(number)
        if not self._objects.put(name, [text]):
            try:
                same = self._objects.get(name) == text
            except FileNotFoundError:
                same = False  # so long ago that it was deleted
            if not same:
                self._check()
                raise Behind
        if self._numbers()[-1] != number:  # the place was free because what lay there was deleted
            self._objects.delete(name)
            self._check()
            raise Behind
        return number

    def trim(self) -> None:
        """Delete what lies before the newest records."""
        for number in self._numbers()[:-KEPT]:
            self._objects.delete(self._name(number))

    def _check(self) -> None:
        last = self.last()
        if last is not None and last.generation > self._generation:
            raise Overtaken("another run has taken over the state", store=self._objects.where, generation=self._generation,
                            later=last.generation, hint="only one may run: this one has written nothing since")  # fmt: skip

    def _numbers(self) -> list[int]:
        return [int(name.removeprefix(self._prefix)) for name in self._objects.names(self._prefix)]

    def _read(self, number: int) -> Record:
        found = json.loads(self._objects.get(self._name(number)))
        try:
            return Record(number, int(found["generation"]), dict(found["body"]))
        except (KeyError, TypeError) as error:
            raise ValueError("a record of the state is damaged") from error

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:012d}"
