"""What is kept of the views in force is all that tells them apart: a start after a crash goes on with the same views."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from headrace.sidecar.control import applied_views
from headrace.sidecar.state.generation import RunState
from headrace.views.limits import FreshnessLimits, Unstratified
from headrace.views.spec import ViewSpec
from headrace.views.view_models import ColumnSpec, RecursionModel

FULL = ViewSpec(
    name="v",
    sql="select 1 as n",
    file="views/v.yaml",
    description="all that can be said of a view",
    key=("n",),
    sinks=("s",),
    columns=(ColumnSpec(name="n", description="one", data_tests=("unique",)),),
    indexes=(("n",),),
    grants=("reader",),
    tags=("t",),
    meta={"owner": "us"},
    rounds=7,
    rows=8,
    unstratified=Unstratified(rounds=3, at_limit="return"),
    recursion=RecursionModel(strategy="bootstrap", switch=0.5),
    freshness=FreshnessLimits(warn=1.0, error=2.0),
    line=4,
    check="unique of w.n",
    program="p",
    relation="r",
)


class Kept:
    """The state of a run, of which the views in force alone are kept."""

    where = "here"

    def __init__(self) -> None:
        self.text: bytes | None = None

    def put_views(self, data: bytes) -> None:
        self.text = data

    def read_views(self) -> bytes | None:
        return self.text


def test_a_view_comes_back_as_it_was_declared() -> None:
    kept = cast(RunState, cast(Any, Kept()))
    plain = ViewSpec("w", "select 2 as n")
    applied_views.note(kept, [FULL, plain])
    assert applied_views.last(kept) == ((FULL, plain), False)


def test_every_field_that_tells_views_apart_is_tried() -> None:
    compared = [f for f in dataclasses.fields(ViewSpec) if f.compare]
    default = ViewSpec("", "")
    assert [f.name for f in compared if getattr(FULL, f.name) == getattr(default, f.name)] == []
