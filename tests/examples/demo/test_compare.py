"""The demo's judge over what an earlier run has left in its folder."""

from __future__ import annotations

import pytest

from examples.demo.compare import DemoFailed, _Topic
from headrace.views.compile import compile_views
from headrace.views.spec import ViewSpec
from tests.views.shop import catalog


def test_records_of_a_view_that_had_other_columns_name_the_way_out() -> None:
    [view] = compile_views([ViewSpec("named", "select id, name from customers")], catalog())
    topic = _Topic(view)
    assert topic.row({"id": 1, "name": "Rome", "gone": 5}) == ("1", "Rome")
    with pytest.raises(DemoFailed, match=r"earlier run's records .*view=named, missing=name.*--fresh"):
        topic.row({"id": 1, "label": "Rome"})
