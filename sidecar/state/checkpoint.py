"""Checkpoints: a manifest (epoch, sources' positions, arrangements as lists of batch files) and immutable batch files.

Always: complete or absent, of all shards. Batches are named by the digest of their bytes and written once; the manifest
is written, synced and renamed after them; a batch that no manifest names is swept. The runtime takes a `Capture` between
two steps (batches are immutable, so this costs nothing) and an executor writes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from headrace.connectors.commit_place import place_of
from headrace.connectors.sink import SourceFrontier
from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.schema import Schema
from headrace.sidecar.state.batch_store import BatchFile, CheckpointError, Files, not_written
from headrace.sidecar.state.filesystem import LOCAL, Disk
from headrace.sidecar.state.generation import RunState
from headrace.sidecar.state.positions import read_positions

FORMAT = 5
"""A state folder of any other format is refused by name."""


@dataclass(frozen=True)
class ViewRecord:
    """A view's plan by fingerprint, the errors alive in it (message → multiplicity), and how many rows it has if known."""

    fingerprint: str
    errors: Mapping[str, int]
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a checkpoint says beside its batches, as of one moment between steps: every epoch ≤ `epoch` is in.

    `workers`: of how many shards the arrangements are. `topic_ids`: source → topic → the id of the topic that the positions are
    of. `stopped`: source → its tables that are suspended; the positions of their topics are those from which they must be read
    again. `sinks`: the epoch that each sink is known to hold. `lost`: source → columns that its records no longer have.
    `beats`: source → its heartbeats. `remembered`: source → what else of what was given its assembler must know. `commands`:
    what of the command log is in.
    """

    epoch: int
    sources: Mapping[str, SourceFrontier] = field(default_factory=dict)
    views: Mapping[str, ViewRecord] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stopped: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)
    workers: int = 1
    lost: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    beats: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    remembered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    commands: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Capture(Contents):
    """A checkpoint that is not written yet. `write`: writes the batches of all shards, as of then, and gives their files."""

    write: Callable[[], Files]


@dataclass(frozen=True, kw_only=True)
class Manifest(Contents):
    """What `manifest.json` says. `program`: what wrote it."""

    arrangements: Files = field(default_factory=dict)
    program: str

    @classmethod
    def of(cls, capture: Capture, files: Files, program: str) -> Manifest:
        """The manifest of a capture whose batches are written."""
        own = {f.name: getattr(capture, f.name) for f in fields(Contents)}
        return cls(**own, arrangements=files, program=program)

    def json(self) -> bytes:
        """The file's bytes."""
        body: dict[str, Any] = {"format": FORMAT}
        for f in fields(self):
            write, _ = _FORMS.get(f.name, _PLAIN)
            body[f.name] = write(getattr(self, f.name))
        return json.dumps({"digest": _digest(body), **body}, indent=1).encode()

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Manifest:
        """Of `json`, less format and digest. Raises KeyError, TypeError, ValueError or AttributeError."""
        found = {}
        for f in fields(cls):
            _, read = _FORMS.get(f.name, _PLAIN)
            if f.name in body or f.default_factory is MISSING:
                found[f.name] = read(body[f.name])
        return cls(**found)


Form = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""How a field is written as JSON, and read back."""


def _by_name(write: Callable[[Any], Any], read: Callable[[Any], Any], *, empty: bool = True) -> Form:
    """A mapping by names; `empty`: whether entries of nothing are written too."""
    return (
        lambda held: {name: write(value) for name, value in held.items() if empty or value},
        lambda body: {name: read(value) for name, value in body.items()},
    )


_PLAIN: Form = (lambda held: dict(held) if isinstance(held, Mapping) else held, lambda body: body)
_FORMS: Mapping[str, Form] = {
    "sources": _by_name(
        lambda at: {"positions": at.positions, **at.place.json(), "commit_us": at.commit_us},
        lambda body: SourceFrontier(read_positions(body["positions"]), place_of(body), body["commit_us"]),
    ),
    "arrangements": _by_name(
        lambda files: [{"file": f.name, "bytes": f.bytes, "shard": f.shard} for f in files],
        lambda body: [BatchFile(f["file"], f["bytes"], f["shard"]) for f in body],
    ),
    "views": _by_name(
        lambda view: {"fingerprint": view.fingerprint, "errors": dict(view.errors), "rows": view.rows},
        lambda body: ViewRecord(body["fingerprint"], body["errors"], body.get("rows")),
    ),
    "topic_ids": _by_name(dict, dict),
    **dict.fromkeys(("stopped", "lost", "beats"), _by_name(list, list, empty=False)),
    "remembered": _by_name(dict, dict, empty=False),
}
"""How the fields of a manifest are written and read that JSON does not hold as they are."""


def _digest(body: Mapping[str, Any]) -> str:
    """Of everything that a manifest says, as JSON has it (where keys are texts)."""
    text = json.dumps(json.loads(json.dumps(body)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def read_manifest(path: Path, disk: Disk = LOCAL) -> Manifest | None:
    """The manifest, or None where there is none. Raises CheckpointError for another format or a damaged file."""
    return parse_manifest(disk.read(path), path) if disk.exists(path) else None


def manifest_of(run: RunState) -> Manifest | None:
    """The manifest of a run, or None where there is none. Raises CheckpointError, StateError, OSError."""
    data = run.read_manifest()
    return None if data is None else parse_manifest(data, run.where)


def parse_manifest(data: bytes, path: object) -> Manifest:
    """The manifest that these bytes are. Raises CheckpointError for another format or a damaged one."""
    try:
        body = json.loads(data)
        digest = body.pop("digest", None)
        if body["format"] != FORMAT:
            raise CheckpointError(
                "the state folder was written by another version", file=path, found=body["format"], known=FORMAT,
                hint=f"run {body.get('program', 'the program')} on it, or start with an empty state folder",
            )  # fmt: skip
        if digest != _digest(body):
            raise ValueError("it says something else than was written")
        return Manifest.parse(body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError("the manifest is damaged", file=path,
                              hint="restore the state folder, or start with an empty one") from error  # fmt: skip


class CheckpointStore:
    """Writes checkpoints of one generation. Single writer: the executor that calls `write`, one call at a time."""

    def __init__(self, run: RunState, program: str, reached: Reached = unwatched) -> None:
        self._run = run
        self._reached = reached
        self._program = program

    def write(self, capture: Capture) -> Manifest:
        """Write what is not kept yet, then the manifest. Raises CheckpointError, StateError; the last manifest then still
        stands."""
        files = capture.write()
        manifest = Manifest.of(capture, files, self._program)
        remote = self._run.place.is_remote
        try:
            self._run.put_manifest(manifest.json(), {f.name for fs in files.values() for f in fs}, self._reached)
        except OSError as error:
            raise not_written(error, self._run.where, remote=remote) from error
        with suppress(OSError) if remote else nullcontext():  # what is not deleted now is with the next checkpoint
            self._run.sweep()
        self._reached("checkpoint swept")
        return manifest


def table_facts(tables: Mapping[str, Schema]) -> dict[str, Any]:
    """The tables as a manifest keeps them: columns with types, and keys."""
    return {
        name: {
            "columns": [
                [c.name, c.type.sql(), *([list(c.type.labels)] if c.type.labels else [])] for c in schema.columns
            ],
            "key": list(schema.key or ()),
        }
        for name, schema in tables.items()
    }


def changed_tables(manifest: Manifest | None, facts: Mapping[str, Any]) -> dict[str, str]:
    """The tables in use of which a checkpoint holds nothing, or something else, each with what is other about it."""
    if manifest is None:
        return {}
    known = manifest.tables
    return {
        name: "was not read before" if name not in known else "has other columns or another key"
        for name, fact in facts.items()
        if known.get(name) != fact
    }


def refuse_published(table: str) -> CheckpointError:
    """Of a publisher's table that a view reads and the state does not have."""
    return CheckpointError(
        "the state does not fit: the table of a publisher was not read before", table=table,
        hint="start without the views that read it, then have `headrace load` fill it beside the sidecar; or start with an empty "
        "state folder: all views are then read anew from the topics",
    )  # fmt: skip


def refuse_change(table: str, change: str) -> CheckpointError:
    """Of a table whose rows no database can be asked for."""
    return CheckpointError(
        f"the state folder does not fit: the table {change}", table=table,
        hint="give `database:` of its debezium source, from which the table is then read, or start with an empty state folder: "
        "all views are then read anew from the topics",
    )  # fmt: skip
