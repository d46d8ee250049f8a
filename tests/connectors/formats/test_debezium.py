"""What Debezium documents and does, message by message."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from headrace.connectors.changes import Decoded, Heartbeat, SnapshotNotification, TransactionMark
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT
from headrace.engine.schema import Kind
from tests.connectors.formats.events import (
    PLACEHOLDER,
    carried,
    carried_key,
    decode,
    envelope,
    field,
    messages,
    source,
    table,
)


def test_operations_of_a_keyed_table() -> None:
    spec = table("public.t", {"id": "integer", "v": "text"})
    block = {"id": "77:5000", "total_order": 4, "data_collection_order": 1}
    values = [
        envelope("r", None, {"id": 1, "v": "a"}, snapshot="first"),
        envelope("c", None, {"id": 2, "v": "b"}, transaction=block),
        envelope("u", None, {"id": 2, "v": "c"}, snapshot="incremental"),
        envelope("d", {"id": 2, "v": ""}),
        None,
        envelope("d", None),
        envelope("t"),
    ]
    decoded = decode(spec, values, [None] * 5 + [{"id": 9}, None])
    (changes,) = decoded.changes
    assert changes.kinds.tolist() == [UPSERT, UPSERT, UPSERT, DELETE, DELETE, TRUNCATE]
    assert changes.offsets.tolist() == [100, 101, 102, 103, 105, 106]
    assert changes.rows.to_pylist()[3:] == [{"id": 2, "v": None}, {"id": 9, "v": None}, {"id": None, "v": None}]
    assert changes.snapshot.tolist() == [1, 0, 2, 0, 0, 0]
    assert changes.read_ms is not None
    assert changes.read_ms[0] == 1700000000001
    assert changes.orders.tolist() == [-1, 4, -1, -1, -1, -1]
    assert changes.metadata.tolist() == [False, True, False, False, False, False]
    assert changes.transactions.tolist() == [77, 77, 1, 77, 77, 77]  # of an incremental snapshot its sequence
    assert changes.lsns.tolist() == [5000, 5000, 2, 5000, 5000, 5000]
    assert changes.timestamps.tolist() == [1700000000000123] * 6
    assert not decoded.undecodable


def test_a_keyless_table_needs_the_row_as_it_was() -> None:
    spec = table("public.t", {"x": "integer", "v": "text"}, None)
    values = [
        envelope("u", {"x": 1, "v": "big"}, {"x": 2, "v": PLACEHOLDER}),
        envelope("d", {"x": 2, "v": "big"}),
        envelope("u", None, {"x": 3, "v": "n"}),
    ]
    decoded = decode(spec, values)
    (changes,) = decoded.changes
    assert changes.kinds.tolist() == [RETRACT, INSERT, RETRACT]
    assert changes.rows.to_pylist() == [{"x": 1, "v": "big"}, {"x": 2, "v": "big"}, {"x": 2, "v": "big"}]
    assert [u.offset for u in decoded.undecodable] == [102]
    assert "REPLICA IDENTITY FULL" in decoded.undecodable[0].hint


def test_a_row_of_an_incremental_snapshot_stands_where_it_was_sent() -> None:
    """As Debezium 3.6.3 writes it: without a transaction, and with where the stream was in its sequence."""
    sent = {"snapshot": "incremental", "txId": None, "lsn": None}
    keyed, keyless = table("public.t", {"id": "integer"}), table("public.t", {"id": "integer"}, None)
    values = [
        envelope("r", None, {"id": 1}, **sent, sequence='["28578264","28577872"]'),
        envelope("r", None, {"id": 2}, **sent, sequence='[null,"7"]'),
        envelope("r", None, {"id": 3}, **sent, sequence=None),
    ]
    decoded = decode(keyed, values)
    [rows] = decoded.changes
    assert (rows.transactions.tolist(), rows.lsns.tolist()) == ([28578264, -1], [28577872, 7])
    assert (rows.snapshot.tolist(), rows.orders.tolist(), rows.metadata.any()) == ([2, 2], [-1, -1], False)
    assert [(u.offset, u.event) for u in decoded.undecodable] == [(102, None)]
    refused = decode(keyless, values[:1]).undecodable[0]
    assert refused.reason == "a row of an incremental snapshot of a table without a key"
    assert "headrace resync" in refused.hint
    assert refused.event is not None
    assert (refused.event.transaction, refused.event.lsn, refused.event.snapshot) == (-1, 28577872, False)


def test_leaf_tables_fold_and_tables_that_share_a_topic_do_not_mix() -> None:
    part = table("public.part", {"id": "integer"}, partitions=("public.a'b", "public.a-2026", "public.a b"))
    odd = table('public.a"b', {"id": "integer"})
    form = DebeziumFormat("s", "p", {part.name: part, odd.name: odd})
    values = [
        envelope("c", None, {"id": 1}, "public.a'b"),
        envelope("c", None, {"id": 2}, 'public.a"b'),
        envelope("c", None, {"id": 3}, "public.a b"),
        envelope("c", None, {"id": 4}, "public.a_b"),
    ]
    decoded = form.decode(messages(values, topic="p.public.a_b"))
    assert decoded.undecodable == []
    assert {c.table: c.rows.column(0).to_pylist() for c in decoded.changes} == {
        "public.part": [1, 3],
        'public.a"b': [2],
    }
    assert form.data_topics() == ["p.public.a-2026", "p.public.a_b", "p.public.part"]
    assert form.wants("p.public.a_b")
    assert form.wants("p.transaction")
    assert not form.wants("p.public.nobody")


@pytest.mark.parametrize("learnt", [False, True])
def test_a_record_that_stands_in_the_topic_of_another_table_is_told_not_passed_over(learnt: bool) -> None:
    """Found by fuzzing: an altered table's name, or operation, let a record vanish."""
    spec = table("public.t", {"id": "integer"})
    form = DebeziumFormat("s", "p", None if learnt else {spec.name: spec}, carried=learnt)
    strange = envelope("c", None, {"id": 2}, "public.t")
    strange["source"]["schema"] = 7
    values = [
        envelope("c", None, {"id": 1}, "public.t"), envelope("c", None, {"id": 2}, "public.other"), strange,
        envelope("m", None, {"id": 3}, "public.t"), envelope("c", None, {"id": 4}, "public.t"),
    ]  # fmt: skip
    fields = [{"type": "int32", "optional": True, "field": "id"}]
    keys = [carried_key({"id": n}) for n in range(len(values))] if learnt else None
    found = form.decode(messages([carried(fields, v) for v in values] if learnt else values, keys))
    assert [c.rows.column(0).to_pylist() for c in found.changes] == [[1, 4]]
    assert [(u.topic, u.partition, u.offset) for u in found.undecodable] == [
        ("p.public.t", 3, n) for n in (101, 102, 103)
    ]


def test_a_dropped_column_is_named_and_an_added_one_ignored() -> None:
    spec = table("public.t", {"id": "integer", "v": "text", "w": "text"}, absent_is_null=frozenset("w"))
    values = [envelope("c", None, {"id": 1, "v": "a", "new": 1}), envelope("c", None, {"id": 2, "new": 1})]
    decoded = decode(spec, values)
    assert decoded.changes[0].rows.to_pylist() == [{"id": 1, "v": "a", "w": None}]
    assert decoded.undecodable[0].reason == "column v is gone: the message has no such field"


def test_one_bad_record_does_not_take_the_others_with_it() -> None:
    spec = table("public.t", {"id": "integer", "v": "text"})
    values: list[Any] = [envelope("c", None, {"id": i, "v": "x"}) for i in range(600)]
    values[17], values[300], values[599] = b"{", {"id": 1}, envelope("c", None, {"id": "seven", "v": "x"})
    decoded = decode(spec, values)
    assert [u.offset for u in decoded.undecodable] == [117, 400, 699]
    assert [u.reason for u in decoded.undecodable][:2] == ["not JSON", "not a Debezium envelope"]
    assert "seven" not in str(decoded.undecodable)
    assert sum(map(len, decoded.changes)) == 597


ROW = [field("id", "int32"), field("total", "bytes", "org.apache.kafka.connect.data.Decimal", scale="2",
       connect_decimal_precision="12"), field("free", "struct", "io.debezium.data.VariableScaleDecimal"),
       field("at", "int64", "io.debezium.time.MicroTimestamp"), field("tags", "array") | {"items": {"type": "string"}},
       field("bits", "bytes", "io.debezium.data.Bits", length="24")]  # fmt: skip
IMAGE = {"id": 1, "total": "/Bk=", "free": {"scale": 3, "value": "DQU="}, "at": 5, "tags": ["x"], "bits": "AQ=="}


@pytest.mark.parametrize("count", [1, 20, 70])
def test_types_and_key_are_learnt_from_the_messages(count: int) -> None:
    form = DebeziumFormat("s", "p")
    run = messages([carried(ROW, envelope("c", None, IMAGE))] * count, [carried_key({"id": 1})] * count)
    decoded = form.decode(run)
    schema = decoded.schemas["public.t"]
    assert [c.type.sql() for c in schema.columns] == ["integer", "numeric(12,2)", "numeric", TIMESTAMP, "text[]"]
    assert schema.key == (0,)
    assert list(form.left_out["public.t"]) == ["bits"]
    row = decoded.changes[0].rows.to_pylist()[-1]
    assert (row["total"], row["free"], row["tags"]) == (Decimal("-9.99"), "3.333", "{x}")
    assert form.decode(run).schemas == {}


TIMESTAMP = Kind.TIMESTAMP.value


def test_a_table_that_changes_in_the_middle_of_a_run() -> None:
    form = DebeziumFormat("s", "p")
    old, new = [field("id", "int32")], [field("id", "int32"), field("w", "string")]
    values = [carried(old, envelope("c", None, {"id": 1}))] * 2 + [
        carried(new, envelope("c", None, {"id": 2, "w": "x"}))
    ]
    decoded = form.decode(messages(values, [carried_key({"id": 1})] * 3))
    assert [c.rows.schema.names for c in decoded.changes] == [["id"], ["id", "w"]]
    assert decoded.schemas["public.t"].names == ("id", "w")


def test_a_truncate_alone_teaches_nothing() -> None:
    form = DebeziumFormat("s", "p")
    fields = [field("id", "int32")]
    first = form.decode(messages([carried(fields, envelope("t"))], [None]))
    assert first.changes[0].kinds.tolist() == [TRUNCATE]
    assert first.schemas == {}
    keyed = form.decode(messages([carried(fields, envelope("c", None, {"id": 1}))], [carried_key({"id": 1})]))
    assert keyed.schemas["public.t"].key == (0,)


def test_declared_types_win_and_are_checked_against_the_schema() -> None:
    spec = table("public.t", {"id": "integer", "total": "numeric(12,2)", "at": "date"})
    form = DebeziumFormat("s", "p", {spec.name: spec}, carried=True)
    decoded = form.decode(messages([carried(ROW, envelope("c", None, IMAGE))]))
    assert decoded.undecodable[0].reason == "column at: date is written as microseconds"


def test_a_schemaless_table_that_nobody_declared() -> None:
    decoded = DebeziumFormat("s", "p").decode(messages([envelope("c", None, {"id": 1})]))
    assert "is not declared" in decoded.undecodable[0].reason


def test_a_schema_that_holds_what_looks_like_its_end() -> None:
    fields = [field("id", "int32"), field("v", "string") | {"default": '","payload":{"x":1}'}]
    value = carried(fields, envelope("c", None, {"id": 1, "v": ',"payload":'}))
    decoded = DebeziumFormat("s", "p").decode(messages([value, value], [carried_key({"id": 1})] * 2))
    assert decoded.changes[0].rows.column(1).to_pylist() == [',"payload":'] * 2


def test_transaction_marks() -> None:
    part = table("public.part", {"id": "integer"}, partitions=("public.a", "public.b"))
    form = DebeziumFormat("s", "p", {part.name: part})
    collections = [{"data_collection": f"public.{n}", "event_count": c} for n, c in (("a", 2), ("b", 3), ("z", 1))]
    values = [
        {"status": "BEGIN", "id": "7:10", "event_count": None, "data_collections": None, "ts_ms": 5},
        {"status": "END", "id": "7:12", "event_count": 6, "data_collections": collections, "ts_ms": 6},
        {"status": "HUH", "id": "7"},
    ]
    sent = np.array([21, 22, 23])
    decoded = form.decode(replace(messages(values, topic="p.transaction"), timestamps=sent))
    assert decoded.marks == [
        TransactionMark("BEGIN", 7, 10, {}, 5000, "p.transaction", 3, 100, 21),
        TransactionMark("END", 7, 12, {"public.part": 5, "public.z": 1}, 6000, "p.transaction", 3, 101, 22),
    ]
    assert [u.offset for u in decoded.undecodable] == [102]


def test_snapshot_notifications_heartbeats_and_what_is_ignored() -> None:
    form = DebeziumFormat("s", "p", notification_topic="notes")

    def note(kind: str, **data: str) -> dict[str, Any]:
        return {"id": "u", "aggregate_type": "Initial Snapshot", "type": kind, "additional_data": data, "timestamp": 2}

    scanned = note("TABLE_SCAN_COMPLETED", scanned_collection="public.t", total_rows_scanned="12", status="SUCCEEDED")
    values = [
        note("STARTED"),
        note("IN_PROGRESS"),
        scanned,
        note("COMPLETED"),
        {"aggregate_type": "Other", "type": "x"},
    ]
    marks = form.decode(replace(messages(values, topic="notes"), timestamps=np.arange(31, 36))).marks
    assert marks == [
        SnapshotNotification("started", None, None, 2000, "notes", 3, 100, 31),
        SnapshotNotification("table", "public.t", 12, 2000, "notes", 3, 102, 33, "public.t"),
        SnapshotNotification("completed", None, None, 2000, "notes", 3, 103, 34),
    ]
    part = table("public.part", {"id": "integer"}, partitions=("public.low",))
    scanned["additional_data"]["scanned_collection"] = "shop.public.low"
    leaf = DebeziumFormat("s", "p", {part.name: part}, notification_topic="notes").decode(
        messages([scanned], topic="notes")
    )
    assert [(m.table, m.scanned) for m in leaf.marks if isinstance(m, SnapshotNotification)] == [
        ("public.part", "shop.public.low")
    ]
    beat = form.decode(messages([{"ts_ms": 9}], topic="__debezium-heartbeat.p"))
    assert beat.marks == [Heartbeat(-1, 9000, "__debezium-heartbeat.p", 3, 100)]
    message = {"op": "m", "source": source("."), "message": {"prefix": "x", "content": "AA=="}}
    assert form.decode(messages([message], topic="p.message")) == Decoded()
    assert form.decode(messages([message])) == Decoded()
    for name in (0, ""):  # found by fuzzing: they were passed over
        told = {**envelope("m"), "source": {**source(), "table": name}}
        assert [bad.offset for bad in form.decode(messages([told])).undecodable] == [100]


@pytest.mark.parametrize("learnt", [False, True], ids=["bare", "with_schemas"])
def test_a_renamed_column_is_found_under_its_older_name_too(learnt: bool) -> None:
    spec = table("public.t", {"id": "integer", "w": "integer"})
    columns = (spec.schema.columns[0], replace(spec.schema.columns[1], renamed_from="v"))
    spec = replace(spec, schema=replace(spec.schema, columns=columns))
    form = DebeziumFormat("s", "p", {spec.name: spec}, loses=True)
    values = [{"id": 1, "v": 5}, {"id": 2, "v": None}, {"id": 3, "w": 6}, {"id": 4, "x": 1}]
    found: list[Any] = []
    for row in values:
        event = envelope("c", None, row)
        sent = carried([field(name, "int32") for name in row], event) if learnt else event
        decoded = form.decode(messages([sent], [carried_key({"id": row["id"]}) if learnt else {"id": row["id"]}]))
        found += [(r, [c.column for c in decoded.lost]) for c in decoded.changes for r in c.rows.to_pylist()]
    assert found == [
        ({"id": 1, "w": 5}, []), ({"id": 2, "w": None}, []), ({"id": 3, "w": 6}, []), ({"id": 4, "w": None}, ["w"]),
    ]  # fmt: skip
    mixed = form.decode(messages([envelope("u", None, row) for row in values[:3]]))
    assert sorted(r["id"] for c in mixed.changes for r in c.rows.to_pylist()) == [1, 2, 3] if not learnt else True
    assert not mixed.undecodable
