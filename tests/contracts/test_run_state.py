"""The contract of a run's state: a generation's folder, a store in a shared folder, and one in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.connectors.step_hooks import unwatched
from headrace.sidecar.state.batch_places import digest_of
from headrace.sidecar.state.batch_store import BatchFile, Files
from headrace.sidecar.state.checkpoint import Capture, CheckpointStore, manifest_of
from headrace.sidecar.state.generation import RunState, StateError, take_generation
from headrace.sidecar.state.object_generation import take_run
from headrace.sidecar.state.objects import FolderObjects, S3Objects
from headrace.sidecar.state.register import Overtaken
from tests.sidecar.support.s3 import S3Server

Take = Callable[[], RunState]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    pytest.importorskip("moto")
    with S3Server() as started:
        yield started


@pytest.fixture(params=["local", "shared folder", "s3"])
def take(request: pytest.FixtureRequest, tmp_path: Path) -> Take:
    """Begins another run, on a machine of its own."""
    if request.param == "local":
        return lambda: take_generation(tmp_path / "state")[0]
    machines = iter(range(100))
    if request.param == "shared folder":
        return lambda: take_run(FolderObjects(tmp_path / "store"), tmp_path / f"machine {next(machines)}")
    access = request.getfixturevalue("server").access(tmp_path.name)
    return lambda: take_run(S3Objects(access), tmp_path / f"machine {next(machines)}")


def begun(take: Take) -> RunState:
    run = take()
    run.begin()
    return run


def put(run: RunState, epoch: int, *contents: bytes) -> list[str]:
    """A checkpoint of batches with these contents; their names."""
    names = [run.place.named(digest_of([content]), epoch) for content in contents]
    files = [BatchFile(name, len(content)) for name, content in zip(names, contents, strict=True)]

    def write() -> Files:
        for file, content in zip(files, contents, strict=True):
            run.place.put(file.name, [content], 0, unwatched)
        run.place.flush()
        return {"a": files}

    CheckpointStore(run, "test").write(Capture(epoch=epoch, write=write))
    return names


def epoch_of(run: RunState) -> int | None:
    """Of the checkpoint that counts."""
    manifest = manifest_of(run)
    return None if manifest is None else manifest.epoch


def test_the_first_run_finds_nothing(take: Take) -> None:
    run = begun(take)
    assert (run.number, epoch_of(run), run.read_views(), run.later_number()) == (1, None, None, None)


def test_a_run_goes_on_with_what_the_one_before_it_knew(take: Take) -> None:
    first = begun(take)
    put(first, 1, b"gone", b"kept")
    _, name = put(first, 2, b"new", b"kept")
    first.put_views(b"the views")
    first.rows.put(3, [b"inject", b"ed"])
    second = begun(take)
    assert (second.number, epoch_of(second), second.read_views()) == (2, 2, b"the views")
    assert bytes(second.place.map(name)) == b"kept"
    assert second.rows.get(3) == b"injected"
    assert first.later_number() == 2


def test_injected_rows_are_let_go_of(take: Take) -> None:
    run = begun(take)
    for epoch in (3, 4):
        run.rows.put(epoch, [b"rows"])
    run.rows.forget(3)
    assert run.rows.get(4) == b"rows"
    with pytest.raises(FileNotFoundError):
        run.rows.get(3)


def test_what_an_overtaken_run_still_writes_counts_for_nobody(take: Take) -> None:
    first = begun(take)
    put(first, 1, b"kept")
    second = begun(take)
    [name] = put(second, 2, b"kept")
    second.put_views(b"of 2")
    with suppress(Overtaken, FileNotFoundError):  # in a folder of its own it may
        put(first, 3, b"stale")
    with suppress(Overtaken, FileNotFoundError):
        first.put_views(b"stale")
    assert (epoch_of(second), second.read_views()) == (2, b"of 2")
    third = begun(take)
    assert (epoch_of(third), third.read_views()) == (2, b"of 2")
    assert bytes(third.place.map(name)) == b"kept"


def test_a_run_that_another_began_behind_does_not_take_over(take: Take) -> None:
    slow = take()
    begun(take)
    with pytest.raises(StateError, match="another run has begun meanwhile"):
        slow.begin()
    with pytest.raises(StateError, match="another run has begun meanwhile"):
        slow.check_newest()


def test_the_same_bytes_may_be_put_again_and_by_another_shard(take: Take) -> None:
    run = begun(take)
    name = run.place.named(digest_of([b"same"]), 1)
    for shard in (0, 1, 1):
        run.place.put(name, [b"same"], shard, unwatched)
    assert bytes(run.place.map(name)) == b"same"


def test_a_batch_that_is_not_there_is_said_so(take: Take) -> None:
    with pytest.raises(FileNotFoundError):
        begun(take).place.map("0" * 40)


def test_a_large_batch_finds_room_on_this_machine(take: Take) -> None:
    run = begun(take)
    assert run.place.scratch.is_dir()
    assert run.folder.is_dir()
