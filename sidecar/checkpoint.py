"""Checkpoints: a manifest (epoch, sources' positions, arrangements as lists of batch files) and immutable batch files.

Always: complete or absent. Batches are named by the digest of their bytes and written once; the manifest is written,
synced and renamed after them; a batch that no manifest names is swept. The runtime takes a `Capture` between two steps
(batches are immutable, so this costs nothing) and an executor writes it.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.durable import Reached, unwatched
from connectors.sink import SourceFrontier
from engine.batch import Batch, Layout
from engine.batch.codec import decode, encode
from engine.errors import HeadraceError
from engine.schema import Schema
from sidecar.generation import Generation
from sidecar.reclock import read_positions

FORMAT = 2
_WITHOUT_DIGEST = 1
"""The format whose manifests have no digest."""


class CheckpointError(HeadraceError):
    """A checkpoint cannot be written, or what is there cannot be read."""

    code = "checkpoint"


@dataclass(frozen=True)
class ViewRecord:
    """A view's plan by fingerprint, and the errors alive in it: message → multiplicity."""

    fingerprint: str
    errors: Mapping[str, int]


@dataclass(frozen=True)
class Capture:
    """Everything a checkpoint holds, as of one moment between steps: every epoch ≤ `epoch` is in.

    `topic_ids`: source → topic → the id of the topic that the positions are of. `stopped`: source → its tables that
    stand still; the positions of their topics are those from which they must be read again. `sinks`: the epoch that each
    sink is known to hold.
    """

    epoch: int
    sources: Mapping[str, SourceFrontier]
    arrangements: Mapping[str, Sequence[Batch]]
    views: Mapping[str, ViewRecord]
    tables: Mapping[str, Any] = field(default_factory=dict)
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stopped: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchFile:
    """A batch on disk: its file's name (digest of its bytes) and size."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says."""

    epoch: int
    sources: Mapping[str, SourceFrontier]
    arrangements: Mapping[str, Sequence[BatchFile]]
    views: Mapping[str, ViewRecord]
    tables: Mapping[str, Any]
    program: str
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stopped: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)

    def json(self) -> bytes:
        """The file's bytes."""
        body = {
            "format": FORMAT,
            "program": self.program,
            "epoch": self.epoch,
            "sources": {
                n: {"positions": s.positions, "lsn": s.lsn, "commit_us": s.commit_us} for n, s in self.sources.items()
            },
            "arrangements": {
                n: [{"file": f.name, "bytes": f.bytes} for f in files] for n, files in self.arrangements.items()
            },
            "views": {n: {"fingerprint": v.fingerprint, "errors": dict(v.errors)} for n, v in self.views.items()},
            "tables": dict(self.tables),
            "topic_ids": {source: dict(ids) for source, ids in self.topic_ids.items()},
            "stopped": {source: list(stops) for source, stops in self.stopped.items() if stops},
            "sinks": dict(self.sinks),
        }
        return json.dumps({"digest": _digest(body), **body}, indent=1).encode()


def _digest(body: Mapping[str, Any]) -> str:
    """Of everything that a manifest says, as JSON has it (where keys are texts)."""
    text = json.dumps(json.loads(json.dumps(body)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def read_manifest(path: Path) -> Manifest | None:
    """The manifest, or None where there is none. Raises CheckpointError for another format or a damaged file."""
    if not path.exists():
        return None
    try:
        body = json.loads(path.read_bytes())
        digest = body.pop("digest", None)
        if body["format"] not in (FORMAT, _WITHOUT_DIGEST):
            raise CheckpointError(
                "the state folder was written by another version", file=path, found=body["format"], known=FORMAT,
                hint=f"run {body.get('program', 'the program')} on it, or start with an empty state folder",
            )  # fmt: skip
        if body["format"] == FORMAT and digest != _digest(body):
            raise ValueError("it says something else than was written")
        return Manifest(
            body["epoch"],
            {
                n: SourceFrontier(read_positions(s["positions"]), s["lsn"], s["commit_us"])
                for n, s in body["sources"].items()
            },
            {n: [BatchFile(f["file"], f["bytes"]) for f in files] for n, files in body["arrangements"].items()},
            {n: ViewRecord(v["fingerprint"], v["errors"]) for n, v in body["views"].items()},
            body["tables"],
            body["program"],
            {source: dict(ids) for source, ids in body.get("topic_ids", {}).items()},
            {source: list(stops) for source, stops in body.get("stopped", {}).items()},
            dict(body.get("sinks", {})),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError("the manifest is damaged", file=path,
                              hint="restore the state folder, or start with an empty one") from error  # fmt: skip


class CheckpointStore:
    """Writes checkpoints of one generation. Single writer: the executor that calls `write`, one call at a time."""

    def __init__(self, generation: Generation, program: str, reached: Reached = unwatched) -> None:
        self._generation = generation
        self._reached = reached
        self._program = program
        self._known: dict[int, tuple[Batch, BatchFile]] = {}

    def adopt(self, batches: Mapping[str, Sequence[Batch]], files: Mapping[str, Sequence[BatchFile]]) -> None:
        """Remember which recovered batch is which file."""
        for name, found in batches.items():
            for batch, file in zip(found, files[name], strict=True):
                self._known[id(batch)] = (batch, file)

    def write(self, capture: Capture) -> Manifest:
        """Write what is not on disk yet, then the manifest. Raises CheckpointError; the last manifest then still stands."""
        try:
            return self._write(capture)
        except OSError as error:
            raise CheckpointError(f"cannot write a checkpoint: {error.strerror}", folder=self._generation.folder,
                                  hint="free disk space; the last checkpoint still stands") from error  # fmt: skip

    def _write(self, capture: Capture) -> Manifest:
        known: dict[int, tuple[Batch, BatchFile]] = {}
        files: dict[str, list[BatchFile]] = {}
        wrote = False
        for name, batches in capture.arrangements.items():
            files[name] = []
            for batch in batches:
                file = known.get(id(batch)) or self._known.get(id(batch))
                if file is None:
                    file = (batch, self._write_batch(batch))
                    wrote = True
                known[id(batch)] = file
                files[name].append(file[1])
        if wrote:
            _sync_folder(self._generation.batches)
        manifest = Manifest(
            capture.epoch, capture.sources, files, capture.views, capture.tables, self._program, capture.topic_ids,
            capture.stopped, capture.sinks,
        )  # fmt: skip
        replace_durably(self._generation.manifest, manifest.json(), self._reached)
        self._known = known
        self._sweep({f.name for fs in files.values() for f in fs})
        self._reached("checkpoint swept")
        return manifest

    def _write_batch(self, batch: Batch) -> BatchFile:
        buffers = encode(batch)
        digest = hashlib.blake2b(digest_size=20)
        size = 0
        for buffer in buffers:
            digest.update(buffer)
            size += memoryview(buffer).nbytes
        file = BatchFile(digest.hexdigest(), size)
        path = self._generation.batches / file.name
        if not path.exists():
            fresh = path.with_name(f"{file.name}.new")
            with fresh.open("wb") as out:
                for buffer in buffers:
                    out.write(buffer)
                out.flush()
                os.fsync(out.fileno())
            self._reached("batch written")
            os.replace(fresh, path)
            self._reached("batch named")
        return file

    def _sweep(self, live: set[str]) -> None:
        """Remove the batches of this generation that its manifest no longer names."""
        for path in self._generation.batches.iterdir():
            if path.name not in live:
                path.unlink(missing_ok=True)


def load_batches(
    manifest: Manifest, generation: Generation, layouts: Mapping[str, Layout]
) -> tuple[dict[str, list[Batch]], dict[str, list[BatchFile]]]:
    """Map the batches of every arrangement in `layouts` that the manifest has; their bytes are checked first.

    Raises CheckpointError naming the file that is missing or altered.
    """
    batches: dict[str, list[Batch]] = {}
    files: dict[str, list[BatchFile]] = {}
    for name in sorted(layouts.keys() & manifest.arrangements.keys()):
        files[name] = list(manifest.arrangements[name])
        batches[name] = [_map_batch(generation.batches / f.name, f, layouts[name], name) for f in files[name]]
    return batches, files


def _map_batch(path: Path, file: BatchFile, layout: Layout, arrangement: str) -> Batch:
    hint = "restore the state folder, or start with an empty one"
    try:
        with path.open("rb") as source:
            mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise CheckpointError("a batch of the checkpoint cannot be read", file=path, arrangement=arrangement,
                              hint=hint) from error  # fmt: skip
    if len(mapped) != file.bytes or hashlib.blake2b(mapped, digest_size=20).hexdigest() != file.name:
        raise CheckpointError("a batch of the checkpoint was altered", file=path, arrangement=arrangement, hint=hint)
    return decode(pa.py_buffer(mapped), layout)


def table_facts(tables: Mapping[str, Schema]) -> dict[str, Any]:
    """The tables as a manifest keeps them: columns with types, and keys."""
    return {
        name: {"columns": [[c.name, c.type.sql()] for c in schema.columns], "key": list(schema.key or ())}
        for name, schema in tables.items()
    }


def check_tables(manifest: Manifest | None, facts: Mapping[str, Any]) -> None:
    """Raise CheckpointError where a table in use is not what the checkpoint holds of it."""
    if manifest is None:
        return
    for name, fact in facts.items():
        if manifest.tables.get(name) != fact:
            change = "was not read before" if name not in manifest.tables else "has other columns or another key"
            raise CheckpointError(
                f"the state folder does not fit: the table {change}", table=name,
                hint="start with an empty state folder; the views are then read anew from the topics",
            )  # fmt: skip


def replace_durably(path: Path, data: bytes, reached: Reached = unwatched) -> None:
    """Write, sync, rename, sync the folder: afterwards the file is the new one, before it the old."""
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    reached("manifest written")
    os.replace(fresh, path)
    _sync_folder(path.parent)
    reached("manifest named")


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
