"""A checkpoint is complete or absent, and whatever is not as it was written is refused by name."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.commit_place import Lsn
from headrace.connectors.sink import SourceFrontier
from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.sidecar.process.serve import allow_files
from headrace.sidecar.state.batch_store import BatchStore, CheckpointError, load_batches
from headrace.sidecar.state.checkpoint import (
    FORMAT,
    Capture,
    CheckpointStore,
    Manifest,
    ViewRecord,
    changed_tables,
    read_manifest,
    table_facts,
)
from headrace.sidecar.state.checkpoint import _digest as digest
from headrace.sidecar.state.generation import Generation, carry_over, take_generation
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VISITS, Little
from tests.sidecar.support.streams import SCHEMA

LAYOUT = Layout(SCHEMA, (0,))
MANY = 96


def batch(*ids: int) -> Batch:
    rows = pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array(ids, pa.int64())], schema=SCHEMA.arrow)
    ones = np.ones(len(ids), np.int64)
    return Batch.seal(LAYOUT, Updates(rows, ones, ones), Description.epochs(0, 2))


def generation(state: Path) -> Generation:
    fresh, previous = take_generation(state)
    carry_over(fresh, previous)
    return fresh


class Store(CheckpointStore):
    """A store of checkpoints, and of the batches of one shard."""

    def __init__(self, state: Generation) -> None:
        super().__init__(state, "p 1")
        self.batches = BatchStore(state.batches)

    def capture(self, epoch: int, *batches: Batch) -> Capture:
        sources = {"shop": SourceFrontier({"t": {0: 7}}, Lsn(70), 700)}
        views, facts = {"v": ViewRecord("f", {"oops": 2})}, table_facts({"s.t": SCHEMA})
        write = partial(self.batches.write, {"a@0": batches})
        return Capture(epoch=epoch, sources=sources, write=write, views=views, tables=facts)


def loaded(state: Generation) -> list[list[int]]:
    manifest = read_manifest(state.manifest)
    assert manifest is not None
    batches = load_batches(manifest.arrangements, state.batches, {"a@0": LAYOUT})
    return [sorted(b.updates().rows.column(0).to_pylist()) for b in batches["a@0"]]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    state = generation(tmp_path)
    store = Store(state)
    store.write(store.capture(5, batch(1, 2), batch(3)))
    manifest = read_manifest(state.manifest)
    assert manifest is not None
    assert (manifest.epoch, manifest.program) == (5, "p 1")
    assert manifest.sources["shop"].positions == {"t": {0: 7}}
    assert manifest.views["v"].errors == {"oops": 2}
    assert loaded(state) == [[1, 2], [3]]


def test_topic_ids_are_kept(tmp_path: Path) -> None:
    state = generation(tmp_path)
    ids = {"shop": {"shop.public.t": "5Fw8"}}
    store = Store(state)
    store.write(replace(store.capture(5, batch(1)), topic_ids=ids))
    manifest = read_manifest(state.manifest)
    assert manifest is not None
    assert manifest.topic_ids == ids


def test_a_batch_is_written_once_and_swept_when_no_manifest_names_it(tmp_path: Path) -> None:
    state = generation(tmp_path)
    store = Store(state)
    kept, gone = batch(1), batch(2)
    store.write(store.capture(1, kept, gone))
    before = {p.name: p.stat().st_ino for p in state.batches.iterdir()}
    store.write(store.capture(2, kept, batch(3)))
    after = {p.name: p.stat().st_ino for p in state.batches.iterdir()}
    assert len(before) == len(after) == 2
    assert len(before.items() & after.items()) == 1
    assert loaded(state) == [[1], [3]]


def test_the_next_generation_reads_what_the_last_one_wrote_and_the_last_one_cannot_harm_it(tmp_path: Path) -> None:
    old = generation(tmp_path)
    store = Store(old)
    store.write(store.capture(1, batch(1)))
    new = generation(tmp_path)
    store.write(store.capture(2, batch(2)))
    assert loaded(new) == [[1]]
    assert loaded(old) == [[2]]


def test_an_altered_or_missing_batch_is_refused_by_name(tmp_path: Path) -> None:
    state = generation(tmp_path)
    store = Store(state)
    store.write(store.capture(1, batch(1)))
    (file,) = state.batches.iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"altered .*{file.name}"):
        loaded(state)
    file.unlink()
    with pytest.raises(CheckpointError, match=f"cannot be read .*{file.name}"):
        loaded(state)


def test_a_state_folder_of_another_version_or_a_torn_manifest_is_refused(tmp_path: Path) -> None:
    state = generation(tmp_path)
    store = Store(state)
    store.write(store.capture(1, batch(1)))
    body = json.loads(state.manifest.read_bytes())
    state.manifest.write_text(json.dumps({**body, "format": 99}))
    with pytest.raises(CheckpointError, match=r"another version .*found=99"):
        read_manifest(state.manifest)
    state.manifest.write_text(json.dumps(body)[:50])
    with pytest.raises(CheckpointError, match="damaged"):
        read_manifest(state.manifest)


def test_tables_that_changed_are_told() -> None:
    facts = table_facts({"s.t": SCHEMA})
    manifest = Manifest(epoch=1, tables=facts, program="p")
    assert changed_tables(manifest, facts) == {}
    assert changed_tables(None, facts) == {}
    assert changed_tables(manifest, {**facts, "s.new": facts["s.t"]}) == {"s.new": "was not read before"}
    assert changed_tables(manifest, {"s.t": {"columns": [], "key": []}}) == {"s.t": "has other columns or another key"}


def test_a_full_disk_is_named_and_the_last_checkpoint_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = generation(tmp_path)
    store = Store(state)
    store.write(store.capture(1, batch(1)))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        store.write(store.capture(2, batch(2)))
    monkeypatch.undo()
    assert loaded(state) == [[1]]


def test_more_batches_than_files_may_be_open(tmp_path: Path) -> None:
    """In a process of its own, as a shell's limit would have it: told with its remedy, which is taken at a start."""
    command = [sys.executable, "-m", "tests.sidecar.state.test_checkpoint", str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    refused, read = told.stdout.splitlines()
    assert "nothing is lost: let it open more files" in refused
    assert read == f"read {MANY}"


def test_a_digit_changed_in_the_manifest_is_noticed(tmp_path: Path) -> None:
    state = generation(tmp_path)
    store = Store(state)
    store.write(store.capture(5, batch(1)))
    text = state.manifest.read_text()
    assert '"0": 7' in text, "the position"
    state.manifest.write_text(text.replace('"0": 7', '"0": 6'))
    with pytest.raises(CheckpointError, match="damaged"):
        read_manifest(state.manifest)


def test_a_manifest_of_many_partitions_is_read_back(tmp_path: Path) -> None:
    state = generation(tmp_path)
    positions = {"t": {p: p for p in range(12)}}
    store = Store(state)
    store.write(replace(store.capture(5), sources={"shop": SourceFrontier(positions, Lsn(1), 1)}))
    found = read_manifest(state.manifest)
    assert found is not None
    assert found.sources["shop"].positions == positions


def main(folder: Path) -> None:
    """Read more batches than files may be open: first with a soft limit, then as a start does."""
    state = generation(folder)
    store = Store(state)
    store.write(store.capture(1, *(batch(i) for i in range(MANY))))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MANY // 2, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        loaded(state)
    except CheckpointError as error:
        print(str(error).replace("\n", " "))
    allow_files()
    print("read", len(loaded(state)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))


@pytest.mark.parametrize("format_", [1, 2, 3])
def test_a_state_folder_of_before_the_moves_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: int
) -> None:
    with Little(tmp_path, monkeypatch).begun({CUSTOMERS: [(1, 1)], ORDERS: [(1, 1)], VISITS: [(1, 1)]}) as shop:
        assert shop.running is not None
        state = shop.running.generation.manifest
        shop.end(drained=True)
        body = json.loads(state.read_bytes())
        del body["digest"]
        body["format"] = format_
        state.write_text(json.dumps({"digest": digest(body), **body}))
        with pytest.raises(CheckpointError, match=rf"another version .*found={format_}, known={FORMAT}") as refused:
            shop.start()
        assert "start with an empty state folder" in (refused.value.hint or "")
