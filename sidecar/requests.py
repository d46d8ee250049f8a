"""What a command asks of a running sidecar, and its answer: files in the state folder, so that no port can change anything.

Always: a request or an answer is there whole or not at all; whoever may write to the state folder may ask. The command
calls `ask`; the host takes what was asked between two turns of the loop and answers it.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import HeadraceError

ASKED, ANSWERED = ".asked", ".answered"


class RequestError(HeadraceError):
    """A running sidecar could not be asked."""

    code = "request"


class Refused(HeadraceError):
    """What a running sidecar answered instead of doing what it was asked."""

    code = "request"

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body["what"]), hint=str(body["hint"]), **body["where"])


@dataclass(frozen=True)
class Request:
    """One thing asked. `does`: what; `of`: its arguments."""

    id: str
    does: str
    of: Mapping[str, Any]


def folder_of(state: Path) -> Path:
    """Where requests are put."""
    return state / "requests"


def ask(
    state: Path, does: str, of: Mapping[str, Any], seconds: float,
    sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.monotonic,
) -> Mapping[str, Any]:  # fmt: skip
    """Ask, and wait for the answer. Raises RequestError where nobody answers in time, Refused for what was answered so."""
    folder, id_ = folder_of(state), uuid.uuid4().hex
    asked, answered = folder / f"{id_}{ASKED}", folder / f"{id_}{ANSWERED}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _put(asked, {"does": does, "of": dict(of)})
    except OSError as error:
        raise RequestError(f"the state folder cannot be written: {error.strerror}", folder=folder,
                           hint="run the command as the user that runs the sidecar") from error  # fmt: skip
    end = now() + seconds
    try:
        while not answered.exists():
            if now() > end:
                raise RequestError("no sidecar answered in time", seconds=seconds, folder=state,
                                   hint="is `headrace run` running, on this state folder?")  # fmt: skip
            sleep(0.05)
        body: Mapping[str, Any] = json.loads(answered.read_bytes())
    finally:
        for path in (asked, answered):
            path.unlink(missing_ok=True)
    if "error" in body:
        raise Refused(body["error"])
    return body


class Requests:
    """The sidecar's side. `take` gives what was asked and not taken yet."""

    def __init__(self, state: Path) -> None:
        self._folder = folder_of(state)
        self._taken: set[str] = set()

    def take(self) -> Iterable[Request]:
        """New requests, in order of their names; a file that is none is removed."""
        with suppress(FileNotFoundError):
            names = sorted(n for n in os.listdir(self._folder) if n.endswith(ASKED))
            self._taken &= set(names)
            for name in names:
                if name not in self._taken:
                    self._taken.add(name)
                    request = self._read(name)
                    if request is not None:
                        yield request

    def _read(self, name: str) -> Request | None:
        try:
            body = json.loads((self._folder / name).read_bytes())
            request = Request(name.removesuffix(ASKED), str(body["does"]), dict(body["of"]))
            os.truncate(self._folder / name, 0)  # a URL in it has a password; that it is there says that somebody waits
            return request
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            with suppress(OSError):
                (self._folder / name).unlink()
            return None

    def answer(self, request: Request, body: Mapping[str, Any] | HeadraceError) -> None:
        """Answer a request; one whose asker went away is answered to nobody."""
        if not (self._folder / f"{request.id}{ASKED}").exists():
            return
        told = {"error": body.as_json()} if isinstance(body, HeadraceError) else body
        with suppress(OSError):
            _put(self._folder / f"{request.id}{ANSWERED}", told)


def _put(path: Path, body: Mapping[str, Any]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(body, default=str))
    os.replace(fresh, path)
