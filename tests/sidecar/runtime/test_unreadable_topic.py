"""A table's topic that cannot be read on while running: its views stand still, named, and the others go on (guarantee P5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connectors.source import SourceError
from headrace.sidecar.process.status_board import status
from tests.sidecar.support.little import CUSTOMERS, ORDERS, OVER, PREFIX, VISITS, Little, answers


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    with Little(tmp_path, monkeypatch).begun({CUSTOMERS: [(1, 5)], ORDERS: [(1, 1)], VISITS: [(1, 1)]}) as made:
        yield made


def test_records_that_retention_took_stop_their_table_alone(shop: Little) -> None:
    good = answers(shop.state)
    topic = f"{PREFIX}.{VISITS}"
    shop.transact((VISITS, "c", (2, 2)), (ORDERS, "c", (2, 1)))
    shop.transact((ORDERS, "c", (3, 1)), (CUSTOMERS, "c", (2, 7)))
    shop.show_all()
    shop.log.truncate(topic, 0, 2)
    shop.turn(3)
    now = answers(shop.state)
    for view in now:
        assert shop.rows(view) == (good if view in OVER[VISITS] else now)[view], view
    assert shop.in_error() == OVER[VISITS]
    assert shop.running is not None
    [stopped] = status(shop.running)["sources"][0]["stopped"]
    assert (stopped["table"], stopped["topic"], stopped["partition"], stopped["offset"]) == (VISITS, topic, 0, 1)
    assert "no longer there" in stopped["error"]
    shop.transact((ORDERS, "c", (4, 1)))
    shop.show_all()
    shop.turn(2)
    assert shop.rows("orders") == answers(shop.state)["orders"], "they go on"
    shop.end(drained=True)
    with pytest.raises(SourceError, match="no longer there"):
        shop.start()


def test_a_break_of_the_transaction_topic_stops_all(shop: Little) -> None:
    shop.transact((ORDERS, "c", (2, 1)))
    shop.transact((ORDERS, "c", (3, 1)))
    shop.show_all()
    shop.log.truncate(f"{PREFIX}.transaction", 0, 1)
    with pytest.raises(SourceError, match="no longer there"):
        shop.turn(3)
