"""The contract of stores of objects: a folder, and S3 as a server in this process has it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.sidecar.state.objects import FolderObjects, Objects, S3Access, S3Objects
from tests.sidecar.support.s3 import S3Server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    with S3Server() as started:
        yield started


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return FolderObjects(tmp_path / "store")
    server: S3Server = request.getfixturevalue("server")
    return S3Objects(server.access(tmp_path.name))


def test_what_was_put_is_there_whole_and_listed(store: Objects) -> None:
    assert store.names("batches/") == []
    assert store.put("batches/a", [b"one", memoryview(b"two")])
    assert store.put("batches/b", [])
    assert store.put("runs/1", [b"x"])
    assert store.get("batches/a") == b"onetwo"
    assert store.get("batches/b") == b""
    assert store.names("batches/") == ["batches/a", "batches/b"]
    assert store.names("runs/") == ["runs/1"]


def test_a_name_that_is_taken_is_not_given_again(store: Objects) -> None:
    assert store.put("manifests/7", [b"first"])
    assert not store.put("manifests/7", [b"second"])
    assert store.get("manifests/7") == b"first"


def test_one_of_many_that_put_a_name_at_once_has_it(store: Objects) -> None:
    begin = threading.Barrier(8)

    def put(k: int) -> bool:
        begin.wait()
        return store.put("runs/000001", [f"run {k}".encode()])

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(put, range(8)))
    assert made.count(True) == 1
    assert store.get("runs/000001") == f"run {made.index(True)}".encode()


def test_what_is_not_there_is_said_so(store: Objects) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("batches/none")
    store.delete("batches/none")


def test_what_was_deleted_is_gone(store: Objects) -> None:
    store.put("batches/a", [b"x"])
    store.delete("batches/a")
    assert store.names("batches/") == []
    with pytest.raises(FileNotFoundError):
        store.get("batches/a")


def test_another_process_has_the_same_store(store: Objects) -> None:
    store.put("batches/a", [b"x"])
    again: Objects = pickle.loads(pickle.dumps(store))
    assert again.get("batches/a") == b"x"
    assert again.where == store.where


def test_a_large_object_goes_in_parts(store: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sidecar.state.objects.ONE_PUT_BYTES", 1 << 20)
    data = bytes(range(256)) * (6 << 12)
    assert store.put("batches/large", [data[:100], data[100:]])
    assert store.get("batches/large") == data
    assert store.counts.written_bytes == len(data)


def test_a_store_that_is_away_is_an_oserror_that_tells_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr("headrace.sidecar.state.objects.RETRY_SECONDS", 0.2)
    away = S3Objects(S3Access("b", "p", "http://127.0.0.1:9", "us-east-1", "key", "top-secret"))
    with pytest.raises(OSError) as caught:  # noqa: PT011
        away.put("x", [b"y"])
    assert not isinstance(caught.value, FileNotFoundError)
    assert "top-secret" not in f"{caught.value} {away._access}"
    assert away.counts.failed == 1
