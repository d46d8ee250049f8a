"""What is in a source and in no view is told: undeclared tables, unused ones, columns that cannot be decoded."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from headrace.sidecar.cli.status import status_tables
from headrace.sidecar.config.config import load
from headrace.sidecar.intake.unused_data import UNDECLARED, UNUSED, Unread, unread

CONFIG = """\
version: 1
name: shop
kafka: {bootstrap.servers: "127.0.0.1:9"}
sources: [{name: shop, type: debezium, topic_prefix: shop}]
sinks: [{name: bus, type: kafka, topic_prefix: shop.views.}]
"""


def test_each_kind_is_told_in_the_order_of_names(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(CONFIG)
    settings = load(path, {})
    topics = {
        "shop.public.audit",
        "shop.public.orders",
        "shop.views.totals",
        "shop.message",
        "shop.headrace.heartbeat",
        "other.public.t",
    }
    left_out = {"public.orders": {"bits": "bit(24) is not decoded"}}
    found = unread(
        settings, settings.config.sources[0], topics - {"shop.public.orders"},
        {"public.orders", "public.old"}, {"public.orders"}, left_out,
    )  # fmt: skip
    assert found == [
        Unread("public.audit", UNDECLARED),
        Unread("public.old", UNUSED),
        Unread("public.orders.bits", "bit(24) is not decoded"),
    ]


@pytest.mark.parametrize("told", [[], [{"what": "public.audit", "why": UNDECLARED}]])
def test_status_shows_them_where_there_are_any(told: list[dict[str, str]]) -> None:
    source = {"name": "shop", "type": "debezium", "events": 1, "lag": 0, "unread": told}
    status = {
        "name": "n",
        "epoch": 1,
        "generation": 1,
        "sources": [source],
        "views": [],
        "arrangements": [],
        "sinks": [],
    }
    out = io.StringIO()
    console = Console(file=out, width=200)
    for table in status_tables(status, verbose=True):
        console.print(table)
    assert ("public.audit" in out.getvalue()) == bool(told)
    assert ("does not declare it" in out.getvalue()) == bool(told)
