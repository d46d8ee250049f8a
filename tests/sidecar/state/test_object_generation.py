"""A run's state in a store: taken once, carried over, lost to a later run; what late deletes and lost answers may not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.commit_place import Lsn
from headrace.sidecar.state.batch_store import StoreAway
from headrace.sidecar.state.checkpoint import Capture, CheckpointStore, manifest_of
from headrace.sidecar.state.generation import StateError
from headrace.sidecar.state.object_generation import ObjectGeneration, kept_run, take_run
from headrace.sidecar.state.objects import Counts, FolderObjects, Objects, S3Objects
from headrace.sidecar.state.register import KEPT, Overtaken
from headrace.sidecar.state.synthetic_transactions import Injected, injected
from tests.sidecar.support.s3 import S3Server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    with S3Server() as started:
        yield started


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return FolderObjects(tmp_path / "store")
    server: S3Server = request.getfixturevalue("server")
    return S3Objects(server.access(tmp_path.name))


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(objects: Objects, tmp_path: Path, clock: Clock | None = None) -> ObjectGeneration:
    run = take_run(objects, tmp_path / "machine", grace=60.0, clock=clock or Clock())
    run.begin()
    return run


def put(run: ObjectGeneration, epoch: int, *names: str) -> None:
    """A checkpoint of these batches."""
    for name in names:
        run.place.put(name, [name.encode()], 0, lambda _: None)
    run.put_manifest(b"epoch %d" % epoch, set(names))
    run.sweep()


def batches(objects: Objects) -> set[str]:
    return {name.removeprefix("batches/") for name in objects.names("batches/")}


def test_each_run_has_a_number_of_its_own_and_goes_on_from_the_newest_manifest(
    objects: Objects, tmp_path: Path
) -> None:
    first = taken(objects, tmp_path)
    assert (first.number, first.read_manifest(), first.read_views()) == (1, None, None)
    put(first, 7, "a.1-1")
    first.put_views(b"views of 1")
    second = taken(objects, tmp_path)
    assert (second.number, second.read_manifest(), second.read_views()) == (2, b"epoch 7", b"views of 1")
    assert kept_run(objects, tmp_path).read_manifest() == b"epoch 7"
    assert first.later_number() == 2
    assert second.later_number() is None


def test_a_run_that_was_overtaken_writes_neither_manifest_nor_views(objects: Objects, tmp_path: Path) -> None:
    first = taken(objects, tmp_path)
    put(first, 1, "a.1-1")
    first.put_views(b"of 1")
    second = taken(objects, tmp_path)
    second.put_views(b"of 2")
    with pytest.raises(Overtaken, match="another run has taken over the state"):
        put(first, 2, "b.1-2")
    with pytest.raises(Overtaken):
        first.put_views(b"late")
    assert (second.read_manifest(), second.read_views()) == (b"epoch 1", b"of 2")


def test_a_run_that_wakes_so_late_that_its_place_was_deleted_is_told_so(objects: Objects, tmp_path: Path) -> None:
    first = taken(objects, tmp_path)
    put(first, 1, "a.1-1")
    second = taken(objects, tmp_path)
    for epoch in range(2, 3 * KEPT):
        put(second, epoch, "a.1-1")
    assert len(objects.names("manifests/")) == KEPT
    with pytest.raises(Overtaken):
        put(first, 2, "b.1-2")
    assert second.read_manifest() == b"epoch %d" % (3 * KEPT - 1)
    assert "a.1-1" in batches(objects)


def test_a_run_that_another_began_before_it_took_over_gives_way(objects: Objects, tmp_path: Path) -> None:
    slow = take_run(objects, tmp_path)
    taken(objects, tmp_path)
    with pytest.raises(StateError, match="another run has begun meanwhile"):
        slow.begin()


def test_a_checkpoint_of_the_run_before_that_comes_in_between_is_carried_over_too(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = taken(objects, tmp_path)
    put(first, 1, "a.1-1")
    second = take_run(objects, tmp_path)
    real = second._manifests.append

    def late(body: Any, after: int) -> int:
        monkeypatch.setattr(second._manifests, "append", real)
        put(first, 2, "b.1-2")
        return real(body, after)

    monkeypatch.setattr(second._manifests, "append", late)
    second.begin()
    assert second.read_manifest() == b"epoch 2"


def test_batches_are_deleted_once_condemned_and_a_while_later(objects: Objects, tmp_path: Path) -> None:
    clock = Clock()
    run = taken(objects, tmp_path, clock)
    put(run, 1, "a.1-1", "b.1-1")
    put(run, 2, "b.1-1", "c.1-2")
    assert batches(objects) == {"a.1-1", "b.1-1", "c.1-2"}, "who still reads the manifest before finds its batches"
    clock.now = 61.0
    put(run, 3, "c.1-2")
    assert batches(objects) == {"b.1-1", "c.1-2"}


def test_what_a_run_left_that_died_before_its_manifest_is_found_by_the_next(objects: Objects, tmp_path: Path) -> None:
    first = taken(objects, tmp_path)
    put(first, 1, "a.1-1")
    first.place.put("orphan.1-2", [b"x"], 0, lambda _: None)
    clock = Clock()
    second = taken(objects, tmp_path, clock)
    put(second, 2, "a.1-1")
    clock.now = 61.0
    put(second, 3, "a.1-1")
    assert batches(objects) == {"a.1-1"}


def test_a_frozen_run_that_deletes_late_harms_nothing_that_counts(objects: Objects, tmp_path: Path) -> None:
    clock = Clock()
    first = taken(objects, tmp_path, clock)
    digest = "d" * 40
    put(first, 1, first.place.named(digest, 1))
    put(first, 2)  # condemned, and the run freezes before it deletes
    second = taken(objects, tmp_path)
    name = second.place.named(digest, 1)
    put(second, 3, name)
    clock.now = 61.0
    first.sweep()
    assert batches(objects) == {name}, "the same content lies under a name of its own"


class Lossy:
    """A store that does what it is asked and loses the answers of so many puts."""

    def __init__(self, objects: Objects) -> None:
        self._objects, self.lost, self.counts = objects, 0, Counts()
        self.where = objects.where
        self.get, self.names, self.delete = objects.get, objects.names, objects.delete

    def put(self, name: str, parts: Any) -> bool:
        made = self._objects.put(name, parts)
        if self.lost:
            self.lost -= 1
            raise OSError(5, "the answer was lost")
        return made


def test_a_manifest_whose_answer_was_lost_is_found_and_goes_before_the_next(objects: Objects, tmp_path: Path) -> None:
    lossy = Lossy(objects)
    run = take_run(lossy, tmp_path / "machine", grace=60.0)
    run.begin()
    store = CheckpointStore(run, "test")
    lossy.lost = 1
    with pytest.raises(StoreAway, match="the answer was lost"):
        store.write(Capture(epoch=1, write=dict))
    store.write(Capture(epoch=2, write=dict))
    manifest = manifest_of(kept_run(objects, tmp_path))
    assert manifest is not None
    assert manifest.epoch == 2
    assert [int(n.rpartition("/")[2]) for n in objects.names("manifests/")] == [1, 2, 3]


def test_injected_rows_survive_the_run_and_its_machine(objects: Objects, tmp_path: Path) -> None:
    first, second = taken(objects, tmp_path), taken(objects, tmp_path)
    import numpy as np
    import pyarrow as pa

    def rows(value: int) -> Any:
        return injected("s.t", pa.RecordBatch.from_pydict({"a": [value]}), np.zeros(1, np.uint8), Lsn(5), 6)

    Injected(first.rows).keep(4, rows(1))
    Injected(second.rows).keep(4, rows(2))
    third = Injected(taken(objects, tmp_path).rows)
    assert third.load(4).slices[0].changes.rows.to_pydict() == {"a": [2]}
    assert Injected(first.rows).load(4).slices[0].changes.rows.to_pydict() == {"a": [1]}
    third.forget(4)
    assert objects.names("injected/") == []


def test_what_was_fetched_is_mapped_again_unless_it_was_altered(objects: Objects, tmp_path: Path) -> None:
    from headrace.sidecar.state.batch_places import digest_of

    place = taken(objects, tmp_path).place
    name = place.named(digest_of([b"rows"]), 3)
    place.put(name, [b"rows"], 0, lambda _: None)
    assert bytes(place.map(name)) == b"rows"
    before = objects.counts.requests
    assert bytes(place.map(name)) == b"rows"
    assert objects.counts.requests == before
    (place.scratch / name).write_bytes(b"altered")
    assert bytes(place.map(name)) == b"rows"
    place.keep_only(set())
    assert not (place.scratch / name).exists()
