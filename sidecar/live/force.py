"""The views in force: what a running sidecar was last told to keep, durable in its state folder.

Always: the file says which views a sidecar that died without a word had, and whether it ended in order; a start after
such a death goes on with them, any other start takes the folder of views. Called by the host and by `apply`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sidecar.checkpoint import replace_durably
from sidecar.disk import LOCAL, Disk
from sidecar.generation import Generation, StateError, last_generation
from sidecar.wiring import Understood
from views.spec import ColumnSpec, ViewSpec

FORMAT = 1
_PLAIN = ("name", "sql", "file", "description", "meta", "line", "check")
_TUPLES = ("key", "sinks", "tags", "grants")


def note(generation: Generation, specs: Sequence[ViewSpec], *, ended: bool = False) -> None:
    """Keep the views; `ended`: the run ends here, in order. Raises StateError."""
    body = {"format": FORMAT, "ended": ended, "views": [_as_json(s) for s in specs]}
    text = json.dumps({"digest": _digest(body), **body}, indent=1, default=str)
    try:
        replace_durably(generation.disk, generation.views, text.encode())
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        remedy = (
            "another run has begun and swept it, or it was removed" if gone else "free disk space, or make it writable"
        )
        raise StateError(f"cannot keep the views in force in the state folder: {error.strerror}", file=generation.views,
                         hint=remedy) from error  # fmt: skip


def last(state: Path, disk: Disk = LOCAL) -> tuple[tuple[ViewSpec, ...], bool] | None:
    """The views that were last in force and whether their run ended in order; None where nothing is known.

    Raises StateError for a damaged file.
    """
    generation = last_generation(state, disk)
    if generation is None or not disk.exists(generation.views):
        return None
    try:
        body = json.loads(disk.read(generation.views))
        if body["format"] != FORMAT or body.pop("digest") != _digest(body):
            raise ValueError("another format, or something else than was written")
        return tuple(_spec(v) for v in body["views"]), bool(body["ended"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError("the file of the views in force is damaged", file=generation.views,
                         hint="remove it: the folder of views is then taken") from error  # fmt: skip


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(json.loads(json.dumps(body, default=str)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def resumed(understood: Understood, disk: Disk = LOCAL) -> tuple[Understood, bool]:
    """What a start keeps: the views last in force where the run before it died, and whether they are not the folder's."""
    found = last(understood.settings.state, disk)
    if found is None or found[1]:
        return understood, False
    specs, _ = found
    if [_meaning(s) for s in specs] == [_meaning(s) for s in understood.specs]:
        return understood, False
    return dataclasses.replace(understood, specs=specs), True


def _meaning(spec: ViewSpec) -> dict[str, Any]:
    """All that tells a view from another, wherever it is written."""
    return {k: v for k, v in _as_json(spec).items() if k not in ("file", "line")}


def _as_json(spec: ViewSpec) -> dict[str, Any]:
    columns = [
        dataclasses.asdict(c) if dataclasses.is_dataclass(c) else c.model_dump(mode="json") for c in spec.columns
    ]
    body = {k: getattr(spec, k) for k in (*_PLAIN, *_TUPLES)}
    return {**body, "columns": columns, "indexes": spec.indexes}


def _spec(body: dict[str, Any]) -> ViewSpec:
    body = {"grants": (), "indexes": (), **body}  # of a version that did not keep them
    found = {k: body[k] for k in _PLAIN} | {k: None if body[k] is None else tuple(body[k]) for k in _TUPLES}
    found["indexes"] = tuple(tuple(columns) for columns in body["indexes"])
    found["columns"] = tuple(ColumnSpec.model_validate(c, strict=False) for c in body["columns"])
    return ViewSpec(**found)
