"""The applied views: what a running sidecar was last told to keep, durable in its state folder.

Invariant: the file says which views were in force, and whether the run ended in order. A start after a crash goes on with
those views; any other start takes the folder. The host and `apply` call it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from headrace.sidecar.state.filesystem import LOCAL, Disk
from headrace.sidecar.state.generation import RunState, StateError
from headrace.sidecar.wiring.project import Project
from headrace.sidecar.wiring.run_states import newest_run
from headrace.views.limits import MOST_ROUNDS, MOST_ROWS, FreshnessLimits, Unstratified
from headrace.views.spec import ViewSpec
from headrace.views.view_models import FOLLOWED, ColumnSpec, RecursionModel

FORMAT = 1
_PLAIN = ("name", "sql", "file", "description", "meta", "line", "check", "rounds", "rows", "program", "relation")
_TUPLES = ("key", "sinks", "tags", "grants")


def note(generation: RunState, specs: Sequence[ViewSpec], *, ended: bool = False) -> None:
    """Keep the views; `ended`: the run ends here, in order. Raises StateError."""
    body = {"format": FORMAT, "ended": ended, "views": [_as_json(s) for s in specs]}
    text = json.dumps({"digest": _digest(body), **body}, indent=1, default=str)
    try:
        generation.put_views(text.encode())
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        remedy = (
            "another run has begun and swept it, or it was removed" if gone else "free disk space, or make it writable"
        )
        raise StateError(f"cannot keep the views in force in the state: {error.strerror}", state=generation.where,
                         hint=remedy) from error  # fmt: skip


def last(generation: RunState | None) -> tuple[tuple[ViewSpec, ...], bool] | None:
    """The views that were last in force and whether their run ended in order; None where nothing is known.

    Raises StateError for a damaged file.
    """
    text = None if generation is None else generation.read_views()
    if generation is None or text is None:
        return None
    try:
        body = json.loads(text)
        if body["format"] != FORMAT or body.pop("digest") != _digest(body):
            raise ValueError("another format, or something else than was written")
        return tuple(_spec(v) for v in body["views"]), bool(body["ended"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError("what is kept of the views in force is damaged", state=generation.where,
                         hint="remove it: the folder of views is then taken") from error  # fmt: skip


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(json.loads(json.dumps(body, default=str)), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def resumed(project: Project, disk: Disk = LOCAL) -> tuple[Project, bool]:
    """What a start keeps: the views last in force where the run before it died, and whether they are not the folder's."""
    found = last(newest_run(project.settings, disk))
    if found is None or found[1]:
        return project, False
    specs, _ = found
    if [_meaning(s) for s in specs] == [_meaning(s) for s in project.specs]:
        return project, False
    return dataclasses.replace(project, specs=specs), True


def _meaning(spec: ViewSpec) -> dict[str, Any]:
    """All that tells a view from another, wherever it is written."""
    return {k: v for k, v in _as_json(spec).items() if k not in ("file", "line")}


def _as_json(spec: ViewSpec) -> dict[str, Any]:
    columns = [
        dataclasses.asdict(c) if dataclasses.is_dataclass(c) else c.model_dump(mode="json") for c in spec.columns
    ]
    body = {k: getattr(spec, k) for k in (*_PLAIN, *_TUPLES)}
    limits = None if spec.freshness is None else spec.freshness.model_dump(mode="json")
    rounds = {} if spec.unstratified is None else {"unstratified": spec.unstratified.model_dump(mode="json")}
    recursion = spec.recursion.model_dump(mode="json")
    return {**body, "columns": columns, "indexes": spec.indexes, "freshness": limits, "recursion": recursion, **rounds}


def _spec(body: dict[str, Any]) -> ViewSpec:
    more = {"grants": (), "indexes": (), "rounds": MOST_ROUNDS, "rows": MOST_ROWS, "program": "", "relation": ""}
    body = {**more, **body}  # of a version that did not keep them
    found = {k: body[k] for k in _PLAIN} | {k: None if body[k] is None else tuple(body[k]) for k in _TUPLES}
    found["indexes"] = tuple(tuple(columns) for columns in body["indexes"])
    found["columns"] = tuple(ColumnSpec.model_validate(c, strict=False) for c in body["columns"])
    recursion = body.get("recursion")
    found["recursion"] = FOLLOWED if recursion is None else RecursionModel.model_validate(recursion, strict=False)
    limits = body.get("freshness")
    found["freshness"] = None if limits is None else FreshnessLimits.model_validate(limits, strict=False)
    if "unstratified" in body:
        found["unstratified"] = Unstratified.model_validate(body["unstratified"], strict=False)
    return ViewSpec(**found)
