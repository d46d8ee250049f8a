"""The password of a connector in a file that Connect's workers read, so that its REST answers never show it.

Invariant: the file is readable by its owner alone, and is there only if Connect took a configuration that refers to it. Called by
`scaffold`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from headrace.connectors.debezium.connect import ConnectError, invalid
from headrace.sidecar.setup.introspection import InitError

_KEY = "password"
_REMEDY = (
    "where Connect runs elsewhere, copy the file there, or let its workers have another config provider, and name it: "
    "--connector-password '${file:/run/secrets/pg.properties:password}'; --show-password registers the password as it is"
)


def register_by_reference(
    connect_url: str, config: Mapping[str, str], file: Path, password: str,
    register: Callable[[Mapping[str, str]], object],
) -> Mapping[str, str]:  # fmt: skip
    """Have `register` take a configuration that refers to the password in `file`; that configuration. Raises InitError where
    Connect cannot read it, and ConnectError; no file is left then."""
    at = file.absolute()
    if any(c in str(at) for c in ":}"):
        raise InitError("Connect cannot refer to a file of such a name", file=at, hint=_REMEDY)
    made = {**config, "database.password": f"${{file:{at}:{_KEY}}}"}
    new = [folder for folder in at.parents if not folder.exists()]
    try:
        _write(at, password)
        if why := invalid(connect_url, made):
            raise InitError(
                "nothing is registered: Connect cannot connect with the password in a file, and would show it in its REST "
                f"answer otherwise: {why.replace(password, '***')}", file=at, hint=_REMEDY,
            )  # fmt: skip
        register(made)
    except (InitError, ConnectError, OSError):
        with suppress(OSError):
            at.unlink()
            for folder in new:
                folder.rmdir()
        raise
    return made


def _write(file: Path, password: str) -> None:
    """Escapes text for a Java properties file: a backslash is doubled, and what is not ASCII is written by its code."""
    text = "".join(c if c.isascii() else _escaped(c) for c in password.replace("\\", "\\\\"))
    text = f"\\{text}" if text[:1] in " \t" else text
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        file.unlink()
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
        out.write(f"{_KEY}={text}\n")


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
