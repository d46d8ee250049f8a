"""A store of objects by name: a folder that several machines share, or a bucket of S3.

Invariant: an object is there whole or not at all, and is never replaced: whoever puts a name first has it. A name is
never given a second meaning, so that a delete that comes late harms nobody. Batches and the register lie in one;
wiring says where.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from headrace.sidecar.state.filesystem import Buffer

ONE_PUT_BYTES = 64 << 20
"""What is larger goes in parts."""
REQUEST_SECONDS = 10.0
RETRY_SECONDS = 20.0
"""How long a request that fails is tried again before the store counts as away."""


@dataclass
class Counts:
    """What was asked of a store so far, by this process. `failed`: requests without an answer."""

    requests: int = 0
    failed: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


class Objects(Protocol):
    """Objects by name; a name may have slashes. Every failure is an OSError; may be called by several threads."""

    counts: Counts

    @property
    def where(self) -> str:
        """How errors call it; without secrets."""

    def put(self, name: str, parts: Sequence[Buffer]) -> bool:
        """Make an object unless one of this name is there, and tell whether this call made it. It is durable then."""

    def get(self, name: str) -> bytes:
        """An object's bytes. Raises FileNotFoundError."""

    def names(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`, ascending: every object whose `put` returned before this was called."""

    def delete(self, name: str) -> None:
        """Take an object away, if it is there."""


class FolderObjects:
    """Objects as files of a folder, on this machine or mounted by several: see `Objects`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts = Counts()

    @property
    def where(self) -> str:
        """See `Objects.where`."""
        return str(self.folder)

    def put(self, name: str, parts: Sequence[Buffer]) -> bool:
        """See `Objects.put`. Written under a name of its own, then linked: a link is refused where the name is taken."""
        self.counts.requests += 1
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f".new-{secrets.token_hex(8)}"
        try:
            with fresh.open("wb") as file:
                for part in parts:
                    self.counts.written_bytes += file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.link(fresh, path)
        except FileExistsError:
            return False
        finally:
            fresh.unlink(missing_ok=True)
        _sync(path.parent)
        return True

    def get(self, name: str) -> bytes:
        """See `Objects.get`."""
        self.counts.requests += 1
        data = (self.folder / name).read_bytes()
        self.counts.read_bytes += len(data)
        return data

    def names(self, prefix: str) -> list[str]:
        """See `Objects.names`."""
        self.counts.requests += 1
        root = (self.folder / prefix) if prefix.endswith("/") else (self.folder / prefix).parent
        found = (p.relative_to(self.folder).as_posix() for p in root.rglob("*") if p.is_file())
        return sorted(n for n in found if n.startswith(prefix) and not n.startswith(".new-"))

    def delete(self, name: str) -> None:
        """See `Objects.delete`."""
        self.counts.requests += 1
        (self.folder / name).unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    end = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(end)
    finally:
        os.close(end)


@dataclass(frozen=True)
class S3Access:
    """How a bucket is reached; what is None is taken from AWS_… variables of whichever process asks."""

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)


class S3Objects:
    """Objects of a bucket under a prefix: see `Objects`. May be pickled: each process makes a client of its own."""

    def __init__(self, access: S3Access) -> None:
        self._access = access
        self.counts = Counts()
        self._lock = threading.Lock()
        self._client: Any = None

    def __getstate__(self) -> S3Access:
        return self._access

    def __setstate__(self, access: S3Access) -> None:
        self.__init__(access)  # type: ignore[misc]

    @property
    def where(self) -> str:
        """See `Objects.where`."""
        return f"s3://{self._access.bucket}/{self._access.prefix}"

    def put(self, name: str, parts: Sequence[Buffer]) -> bool:
        """See `Objects.put`: a conditional put. What goes in parts has no condition, and is named by its content."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        data = b"".join(memoryview(part).cast("B") for part in parts)
        with suppress(AlreadyExistsError, PreconditionError):
            if len(data) <= ONE_PUT_BYTES:
                self._asked(obstore.put, name, data, mode="create", use_multipart=False)
            else:
                self._asked(obstore.put, name, data, use_multipart=True)
            self.counts.written_bytes += len(data)
            return True
        return False

    def get(self, name: str) -> bytes:
        """See `Objects.get`."""
        import obstore

        data = bytes(self._asked(lambda client, at: obstore.get(client, at).bytes(), name))
        self.counts.read_bytes += len(data)
        return data

    def names(self, prefix: str) -> list[str]:
        """See `Objects.names`."""
        import obstore

        folder = prefix.rpartition("/")[0]
        found = self._asked(lambda client, at: obstore.list(client, at or None).collect(), folder)
        return sorted(str(one["path"]) for one in found if one["path"].startswith(prefix))

    def delete(self, name: str) -> None:
        """See `Objects.delete`."""
        import obstore

        with suppress(FileNotFoundError):
            self._asked(obstore.delete, name)

    def _asked(self, ask: Any, name: str, *arguments: Any, **named: Any) -> Any:
        """Send one request. Raises OSError; the client's own errors would show paths and signatures."""
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError

        self.counts.requests += 1
        try:
            return ask(self._opened(), name, *arguments, **named)
        except (AlreadyExistsError, PreconditionError):
            raise
        except (NotFoundError, FileNotFoundError) as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", name) from error
        except (BaseError, OSError, ValueError) as error:
            self.counts.failed += 1
            raise OSError(errno.EIO, _first_line(error), name) from error

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                from obstore.store import S3Store

                access = self._access
                named = {"endpoint": access.endpoint, "region": access.region, "access_key_id": access.key,
                         "secret_access_key": access.secret}  # fmt: skip
                given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
                plain = (access.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http://")
                self._client = S3Store(
                    access.bucket, prefix=access.prefix or None, **given,
                    client_options={"timeout": timedelta(seconds=REQUEST_SECONDS), "allow_http": plain},
                    retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=RETRY_SECONDS),
                                  "backoff": {"init_backoff": timedelta(milliseconds=100),
                                              "max_backoff": timedelta(seconds=2), "base": 2}},
                )  # fmt: skip
            return self._client


def _first_line(error: Exception) -> str:
    """What a client says first; the rest are headers and bodies."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
