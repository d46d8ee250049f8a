"""Checkpoints: a manifest (epoch, sources' positions, arrangements as lists of batch files) and immutable batch files.

Always: complete or absent, of all shards. Batches are named by the digest of their bytes and written once; the manifest
is written, synced and renamed after them; a batch that no manifest names is swept. The runtime takes a `Capture` between
two steps (batches are immutable, so this costs nothing) and an executor writes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connectors.durable import Reached, unwatched
from connectors.sink import SourceFrontier
from engine.schema import Schema
from sidecar.batches import BatchFile, CheckpointError, Files
from sidecar.bindings import read_positions
from sidecar.disk import LOCAL, Disk
from sidecar.generation import Generation

FORMAT = 3
_OLDER = (1, 2)
"""Formats that are read too: both of one shard, the first without a digest."""


@dataclass(frozen=True)
class ViewRecord:
    """A view's plan by fingerprint, and the errors alive in it: message → multiplicity."""

    fingerprint: str
    errors: Mapping[str, int]


@dataclass(frozen=True)
class Capture:
    """Everything a checkpoint holds, as of one moment between steps: every epoch ≤ `epoch` is in.

    `write`: writes the batches of `workers` shards, as of that moment, and gives their files.
    `topic_ids`: source → topic → the id of the topic that the positions are of. `stopped`: source → its tables that
    stand still; the positions of their topics are those from which they must be read again. `sinks`: the epoch that each
    sink is known to hold. `lost`: source → columns that its records no longer have. `beats`: source → its heartbeats.
    `remembered`: source → what else of what was given its assembler must know.
    """

    epoch: int
    sources: Mapping[str, SourceFrontier]
    write: Callable[[], Files]
    views: Mapping[str, ViewRecord]
    tables: Mapping[str, Any] = field(default_factory=dict)
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stopped: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)
    workers: int = 1
    lost: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    beats: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    remembered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says. `workers`: of how many shards the arrangements are."""

    epoch: int
    sources: Mapping[str, SourceFrontier]
    arrangements: Files
    views: Mapping[str, ViewRecord]
    tables: Mapping[str, Any]
    program: str
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stopped: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)
    workers: int = 1
    lost: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    beats: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    remembered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

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
                n: [{"file": f.name, "bytes": f.bytes, "shard": f.shard} for f in files]
                for n, files in self.arrangements.items()
            },
            "views": {n: {"fingerprint": v.fingerprint, "errors": dict(v.errors)} for n, v in self.views.items()},
            "tables": dict(self.tables),
            "topic_ids": {source: dict(ids) for source, ids in self.topic_ids.items()},
            "stopped": {source: list(stops) for source, stops in self.stopped.items() if stops},
            "sinks": dict(self.sinks),
            "workers": self.workers,
            "lost": {source: list(columns) for source, columns in self.lost.items() if columns},
            "beats": {source: list(beats) for source, beats in self.beats.items() if beats},
            "remembered": {source: dict(body) for source, body in self.remembered.items() if body},
        }
        return json.dumps({"digest": _digest(body), **body}, indent=1).encode()


def _digest(body: Mapping[str, Any]) -> str:
    """Of everything that a manifest says, as JSON has it (where keys are texts)."""
    text = json.dumps(json.loads(json.dumps(body)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def read_manifest(path: Path, disk: Disk = LOCAL) -> Manifest | None:
    """The manifest, or None where there is none. Raises CheckpointError for another format or a damaged file."""
    if not disk.exists(path):
        return None
    try:
        body = json.loads(disk.read(path))
        digest = body.pop("digest", None)
        if body["format"] not in (FORMAT, *_OLDER):
            raise CheckpointError(
                "the state folder was written by another version", file=path, found=body["format"], known=FORMAT,
                hint=f"run {body.get('program', 'the program')} on it, or start with an empty state folder",
            )  # fmt: skip
        if body["format"] > 1 and digest != _digest(body):
            raise ValueError("it says something else than was written")
        return Manifest(
            body["epoch"],
            {
                n: SourceFrontier(read_positions(s["positions"]), s["lsn"], s["commit_us"])
                for n, s in body["sources"].items()
            },
            {
                n: [BatchFile(f["file"], f["bytes"], f.get("shard", 0)) for f in files]
                for n, files in body["arrangements"].items()
            },
            {n: ViewRecord(v["fingerprint"], v["errors"]) for n, v in body["views"].items()},
            body["tables"],
            body["program"],
            {source: dict(ids) for source, ids in body.get("topic_ids", {}).items()},
            {source: list(stops) for source, stops in body.get("stopped", {}).items()},
            dict(body.get("sinks", {})),
            body.get("workers", 1),
            {source: list(columns) for source, columns in body.get("lost", {}).items()},
            {source: list(beats) for source, beats in body.get("beats", {}).items()},
            {source: dict(known) for source, known in body.get("remembered", {}).items()},
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

    def write(self, capture: Capture) -> Manifest:
        """Write what is not on disk yet, then the manifest. Raises CheckpointError; the last manifest then still stands."""
        try:
            return self._write(capture)
        except OSError as error:
            raise CheckpointError(f"cannot write a checkpoint: {error.strerror}", folder=self._generation.folder,
                                  hint="free disk space; the last checkpoint still stands") from error  # fmt: skip

    def _write(self, capture: Capture) -> Manifest:
        files = capture.write()
        manifest = Manifest(
            capture.epoch, capture.sources, files, capture.views, capture.tables, self._program, capture.topic_ids,
            capture.stopped, capture.sinks, capture.workers, capture.lost, capture.beats,
            capture.remembered,
        )  # fmt: skip
        replace_durably(self._generation.disk, self._generation.manifest, manifest.json(), self._reached)
        self._sweep({f.name for fs in files.values() for f in fs})
        self._reached("checkpoint swept")
        return manifest

    def _sweep(self, live: set[str]) -> None:
        """Remove the batches of this generation that its manifest no longer names."""
        folder, disk = self._generation.batches, self._generation.disk
        for name in disk.names(folder):
            if name not in live:
                disk.remove(folder / name)


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


def replace_durably(disk: Disk, path: Path, data: bytes, reached: Reached = unwatched) -> None:
    """Write, rename, sync the folder: afterwards the file is the new one, before it the old."""
    fresh = path.with_suffix(".new")
    disk.write(fresh, [data])
    reached("manifest written")
    disk.replace(fresh, path)
    disk.sync_folder(path.parent)
    reached("manifest named")
