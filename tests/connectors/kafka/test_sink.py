"""What only the Kafka sink promises: records per epoch with their headers, ends for readers, policies, counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal as D
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from confluent_kafka.cimpl import NewTopic, Producer

from headrace.connectors.kafka import readback
from headrace.connectors.kafka.readback import Readback
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.transactional_producer import Transactions
from headrace.connectors.sink import Fenced, SinkError
from tests.contracts.sink import LINES, ORDERS, changes, frontier, stamps, texts, view_of, whole
from tests.contracts.test_kafka_sink import KafkaHarness, read_committed


@pytest.fixture
def harness(kafka: str, unique: str) -> Iterator[KafkaHarness]:
    made = KafkaHarness(kafka, f"{unique}.")
    yield made
    made.close()


def sent(harness: KafkaHarness, view: str) -> list[tuple[Any, Any, dict[str, bytes]]]:
    topic = f"{harness.prefix}{view}"
    records = read_committed(harness.bootstrap, topic, harness.frontier()["ends"][topic]["0"])
    return [
        (orjson.loads(m.key()), None if m.value() is None else orjson.loads(m.value()), dict(m.headers() or []))
        for m in records
    ]


FLOW = changes(
    ORDERS,
    ((1, D("1.00"), "a"), 2, -1), ((1, D("1.50"), "a"), 2, 1), ((2, None, None), 2, 1),
    ((1, D("1.50"), "a"), 3, -1),
)  # fmt: skip


def test_each_epoch_sends_one_record_a_key_with_its_stamp(harness: KafkaHarness) -> None:
    sink = harness.make(each=True)
    sink.open([ORDERS])
    sink.write({ORDERS.name: whole(ORDERS, 1, (1, D("1.00"), "a"))}, frontier(1), stamps(1))
    sink.write({ORDERS.name: FLOW}, frontier(3), stamps(2, 3))
    records = sent(harness, ORDERS.name)
    assert [(key, value, int(headers["epoch"])) for key, value, headers in records] == [
        ({"customer": 1}, {"customer": 1, "total": "1.00", "note": "a"}, 1),
        ({"customer": 1}, {"customer": 1, "total": "1.50", "note": "a"}, 2),
        ({"customer": 2}, {"customer": 2, "total": None, "note": None}, 2),
        ({"customer": 1}, None, 3),
    ]
    stamp = {"source": b"shop", "lsn": b"0/C8", "commit_us": b"%d" % (10**15 + 2)}
    assert records[1][2] == {"epoch": b"2", "first_epoch": b"2", **stamp}
    assert (harness.frontier()["first_epoch"], harness.frontier()["epoch"]) == (2, 3)


def test_the_epochs_of_a_write_are_one_range_unless_each_is_asked_for(harness: KafkaHarness) -> None:
    """However long it waited: one record a key, with the first and the last epoch, and what the last says of itself."""
    sink = harness.make()
    sink.open([ORDERS, LINES])
    sink.write({ORDERS.name: whole(ORDERS, 3, (1, D("1.00"), "a"), (4, None, "b"))}, frontier(3), stamps(3))
    lines = changes(LINES, (("a", 1), 4, 2), (("a", 1), 5, -1), (("b", 1), 5, 1), (("b", 1), 6, -1))
    early = replace(FLOW, epochs=FLOW.epochs + 2)
    sink.write({ORDERS.name: early, LINES.name: lines}, frontier(7), stamps(4, 5, 6, 7))
    records = sent(harness, ORDERS.name)[2:]
    assert [(key["customer"], value and value["total"]) for key, value, _ in records] == [(1, None), (2, None)]
    row = {"product": "a", "quantity": 1}
    assert [(k, v) for k, v, _ in sent(harness, LINES.name)] == [(row, {"row": row, "count": 1})]
    stamp = {"source": b"shop", "lsn": b"0/2BC", "commit_us": b"%d" % (10**15 + 7)}
    for _, _, headers in (*records, *sent(harness, LINES.name)):
        assert headers == {"epoch": b"7", "first_epoch": b"4", **stamp}
    assert (harness.frontier()["first_epoch"], harness.frontier()["epoch"]) == (4, 7)
    again = changes(LINES, (("a", 1), 8, 1))
    sink.write({LINES.name: again}, frontier(9), stamps(8, 9), {LINES.name: "division by zero"})
    assert sent(harness, LINES.name)[-1][2]["epoch"] == b"8", "where a view in error stands is told by its records"
    assert harness.frontier()["errors"][f"{harness.prefix}{LINES.name}"]["epoch"] == 8
    sink.write({}, frontier(9), {}, {LINES.name: ""})
    assert (harness.frontier()["first_epoch"], harness.frontier()["epoch"]) == (9, 9)


@pytest.mark.parametrize("each", [True, False])
def test_what_came_after_a_whole_content_is_told_with_it(harness: KafkaHarness, each: bool) -> None:
    """Both waited: rows of the content are changed, or gone, before the sink has it."""
    sink = harness.make(each=each)
    sink.open([ORDERS])
    content = changes(
        ORDERS,
        ((1, D("1.00"), "a"), 5, 1), ((2, None, "b"), 5, 1), ((3, None, "c"), 5, 1),
        ((1, D("1.00"), "a"), 6, -1), ((1, D("2.00"), "a"), 6, 1), ((2, None, "b"), 7, -1), ((4, None, None), 7, 1),
        whole=True,
    )  # fmt: skip
    sink.write({ORDERS.name: content}, frontier(7), stamps(5, 6, 7))
    told = [(key["customer"], value and value["total"]) for key, value, _ in sent(harness, ORDERS.name)]
    assert sorted(told) == [(1, "2.00"), (3, None), (4, None)]


def test_a_keyless_record_is_the_row_and_how_often_it_is_there(harness: KafkaHarness) -> None:
    sink = harness.make(each=True)
    sink.open([LINES])
    sink.write({LINES.name: changes(LINES, (("a", 1), 1, 2), whole=True)}, frontier(1))
    sink.write({LINES.name: changes(LINES, (("a", 1), 2, 1), (("a", 1), 3, -3))}, frontier(3))
    row = {"product": "a", "quantity": 1}
    assert [(key, value) for key, value, _ in sent(harness, LINES.name)] == [
        (row, {"row": row, "count": 2}),
        (row, {"row": row, "count": 3}),
        (row, None),
    ]
    with pytest.raises(SinkError, match="less than zero"):
        sink.write({LINES.name: changes(LINES, (("a", 1), 4, -1))}, frontier(4))
    sink.write({LINES.name: changes(LINES, (("a", 1), 5, 1))}, frontier(5))
    assert sent(harness, LINES.name)[-1][1] == {"row": row, "count": 1}


def test_the_frontier_names_the_end_of_each_output_partition(harness: KafkaHarness) -> None:
    sink = harness.make()
    sink.open([ORDERS, LINES])
    sink.write(
        {ORDERS.name: whole(ORDERS, 1, (1, None, None), (2, None, None)), LINES.name: whole(LINES, 1)}, frontier(1)
    )
    first = harness.frontier()
    assert first["ends"] == {f"{harness.prefix}{ORDERS.name}": {"0": 2}}
    sink.write({LINES.name: changes(LINES, (("a", 1), 2, 1))}, frontier(2))
    second = harness.frontier()
    assert second["ends"] == {f"{harness.prefix}{ORDERS.name}": {"0": 2}, f"{harness.prefix}{LINES.name}": {"0": 1}}
    assert (second["epoch"], second["generation"], second["sources"]["shop"]["lsn"]) == (2, 1, "2/FF")
    assert second["sources"]["shop"]["order"] == 2 << 32 | 255
    sink.write({ORDERS.name: changes(ORDERS, ((1, None, None), 3, -1))}, frontier(3))
    assert harness.frontier()["ends"][f"{harness.prefix}{ORDERS.name}"] == {"0": 4}, "a marker stands between"


def test_several_partitions_keep_each_key_in_one(harness: KafkaHarness, kafka: str) -> None:
    config = {"bootstrap.servers": kafka}
    sink = KafkaSink("group", config, harness.prefix, sidecar=harness.prefix, replication=1, partitions=3)
    harness.made.append(sink)
    sink.open([ORDERS])
    rows = [(i, None, str(i)) for i in range(30)]
    sink.write({ORDERS.name: whole(ORDERS, 1, *rows)}, frontier(1))
    sink.write({ORDERS.name: changes(ORDERS, *[(row, 2, -1) for row in rows])}, frontier(2))
    ends = harness.frontier()["ends"][f"{harness.prefix}{ORDERS.name}"]
    assert len(ends) == 3
    left = set()
    for partition, end in ends.items():
        for message in read_committed(kafka, f"{harness.prefix}{ORDERS.name}", end, int(partition)):
            (left.discard if message.value() is None else left.add)((partition, message.key()))
    assert left == set()


def test_values_that_json_numbers_would_round_are_texts(harness: KafkaHarness, kafka: str) -> None:
    exact = view_of(
        "exact", ["k"], k="bigint!", n="numeric", d="double precision", j="jsonb", t="timestamptz", b="bytea"
    )
    sink = harness.make()
    sink.open([exact])
    row = (2**63 - 1, "1.50", 0.1, '{"a": 1.10}', 0, b"\x00\xff")
    sink.write({exact.name: whole(exact, 1, row, (1, "NaN", float("nan"), None, None, None))}, frontier(1))
    topic = f"{harness.prefix}exact"
    values = [m.value() for m in read_committed(kafka, topic, harness.frontier()["ends"][topic]["0"])]
    assert values[0] == (
        b'{"k":9223372036854775807,"n":"1.50","d":0.1,"j":{"a": 1.10},"t":"1970-01-01T00:00:00+00:00","b":"\\\\x00ff"}'
    )
    assert values[1] == b'{"k":1,"n":"NaN","d":"NaN","j":null,"t":null,"b":null}'


def test_topics_are_compacted_and_a_strangers_topic_is_refused(harness: KafkaHarness, kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    harness.make().open([ORDERS])
    for topic in (ORDERS.name, "frontier"):
        resource = ConfigResource(ConfigResource.Type.TOPIC, f"{harness.prefix}{topic}")
        assert admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "compact"
    taken = f"{harness.prefix}{LINES.name}"
    admin.create_topics([NewTopic(taken, 1, 1, config={"cleanup.policy": "delete"})])[taken].result()
    with pytest.raises(SinkError, match="would lose rows"):
        harness.make().open([ORDERS, LINES])
    full = f"{harness.prefix}full"
    admin.create_topics([NewTopic(full, 1, 1, config={"cleanup.policy": "compact"})])[full].result()
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(full, b"theirs", b"k")
    producer.flush(10)
    with pytest.raises(SinkError, match="did not write"):
        harness.make().open([view_of("full", ["id"], id="bigint!")])


def test_an_instance_that_lost_an_answer_does_not_fence_its_successor(harness: KafkaHarness) -> None:
    old = harness.make()
    old.open([ORDERS])
    old.write({ORDERS.name: whole(ORDERS, 1)}, frontier(1))
    new = harness.make()
    new.open([ORDERS])
    old._drop()  # as after an ambiguous end: the next write must settle first
    with pytest.raises(Fenced):
        old.write({ORDERS.name: changes(ORDERS, ((1, None, None), 2, 1))}, frontier(2))
    new.write({ORDERS.name: changes(ORDERS, ((2, None, None), 2, 1))}, frontier(2))
    assert harness.content(ORDERS) == texts(ORDERS, (2, None, None))


@pytest.mark.long
def test_a_transaction_that_the_broker_ended_for_its_age_is_written_again(harness: KafkaHarness, kafka: str) -> None:
    """A sidecar that was frozen in the middle of a write for longer than a transaction may last, and not superseded."""
    freezes = [0.0, 0.0, 19.5]  # the broker looks every 10 s

    def reached(step: str) -> None:
        if step == "kafka sent" and freezes:
            time.sleep(freezes.pop(0))

    config = {"bootstrap.servers": kafka, "transaction.timeout.ms": 8000}
    sink = KafkaSink(
        "group", config, harness.prefix, sidecar=harness.prefix, replication=1, patience=60.0, reached=reached
    )
    harness.made.append(sink)
    sink.open([LINES])
    sink.write({LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
    sink.write({LINES.name: changes(LINES, (("b", 1), 2, 1))}, frontier(2))
    assert freezes == []
    assert harness.content(LINES) == texts(LINES, ("a", 1), ("b", 1))
    sink.write({LINES.name: changes(LINES, (("b", 1), 3, -1))}, frontier(3))
    assert harness.content(LINES) == texts(LINES, ("a", 1))


def test_a_failed_write_leaves_the_counts_as_they_were(harness: KafkaHarness) -> None:
    sink = harness.make()
    sink.open([LINES, ORDERS])
    sink.write({LINES.name: whole(LINES, 1, ("a", 1)), ORDERS.name: whole(ORDERS, 1)}, frontier(1))
    bad = changes(ORDERS, ((1, None, "a"), 2, 1), ((1, None, "b"), 2, 1))
    with pytest.raises(SinkError):
        sink.write({LINES.name: changes(LINES, (("a", 1), 2, 5)), ORDERS.name: bad}, frontier(2))
    sink.write({LINES.name: changes(LINES, (("a", 1), 2, 1))}, frontier(2))
    assert sent(harness, LINES.name)[-1][1]["count"] == 2


def test_a_broker_that_is_not_there_is_told(unique: str) -> None:
    with pytest.raises(SinkError, match="start Kafka"):
        KafkaSink("group", {"bootstrap.servers": "127.0.0.1:1"}, unique, patience=1.0).open([ORDERS])


@pytest.mark.parametrize(
    "config",
    [{"bootstrap.servers": "x:1", "no.such.key": "1"}, {"bootstrap.servers": "x:1", "acks": "1"}, {}],
)
def test_settings_that_cannot_be_are_named(config: dict[str, str]) -> None:
    with pytest.raises(SinkError, match=r"no\.such\.key|acks|bootstrap\.servers"):
        KafkaSink("group", config).open([])


def test_where_a_write_ends_is_foreseen_and_a_wrong_guess_is_made_good(
    harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    foresee = Transactions._foreseen

    def foreseen(self: Transactions, records: Any) -> Any:
        ends = foresee(self, records)
        if records:
            asked.append(ends is not None)
        return ends

    monkeypatch.setattr(Transactions, "_foreseen", foreseen)
    sink = harness.make()
    sink.open([LINES])
    sink.write({LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
    assert asked == [False]
    asked.clear()
    sink.write({LINES.name: changes(LINES, (("b", 1), 2, 2))}, frontier(2))
    assert asked == [True], "from the second write on, rows and frontier go together"
    topic = f"{harness.prefix}{LINES.name}"
    stranger = Producer({"bootstrap.servers": harness.bootstrap})
    stranger.produce(topic, b'{"row":{"product":"x","quantity":0},"count":1}', b'{"product":"x","quantity":0}')
    assert stranger.flush(10) == 0
    sink.write({LINES.name: changes(LINES, (("c", 1), 3, 1))}, frontier(3))
    assert asked == [True, True, False], "the guess failed, was aborted, and the write repeated without one"
    end = harness.frontier()["ends"][topic]["0"]
    keys = [orjson.loads(m.key())["product"] for m in read_committed(harness.bootstrap, topic, end)]
    assert keys == ["a", "b", "x", "c"]
    sink.write({LINES.name: changes(LINES, (("c", 1), 4, -1))}, frontier(4))
    assert asked[3:] == [True]
    assert harness.content(LINES) == texts(LINES, ("a", 1), ("b", 1), ("b", 1), ("x", 0))


@pytest.mark.parametrize("behind", [0, 2])
@pytest.mark.parametrize(("end", "seen"), [("commit", True), ("abort", False), ("none", False)])
def test_whether_readers_see_a_transaction_is_told(
    harness: KafkaHarness, kafka: str, monkeypatch: pytest.MonkeyPatch, end: str, seen: bool, behind: int
) -> None:
    monkeypatch.setattr(readback, "_MARKERS", 1.0)
    topic, client = f"{harness.prefix}seen", AdminClient({"bootstrap.servers": kafka})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush(10)
    if end != "none":
        producer.commit_transaction(10) if end == "commit" else producer.abort_transaction(10)
    for _ in range(behind):
        other = Producer({"bootstrap.servers": kafka})
        other.produce(topic, b"y")
        assert other.flush(10) == 0
    reader = Readback({"bootstrap.servers": kafka}, client, harness.make()._error, 10.0)
    assert reader.is_shown(topic, 1) == (seen or (end == "abort" and not behind))
    assert reader.left_open({topic: 1}) == ({(topic, 0): 0} if end == "none" else {})


@pytest.mark.parametrize("limited", ["client", "topic"])
def test_a_row_larger_than_a_message_may_be_is_named_and_the_sink_stays_of_use(
    harness: KafkaHarness, kafka: str, limited: str
) -> None:
    sink = harness.make()
    if limited == "client":
        sink._settings["message.max.bytes"] = "2000"
    topic = NewTopic(f"{harness.prefix}{LINES.name}", 1, 1, config={"cleanup.policy": "compact", **(
        {"max.message.bytes": "2000"} if limited == "topic" else {})})  # fmt: skip
    client = AdminClient({"bootstrap.servers": kafka})
    client.create_topics([topic])[topic.topic].result()
    sink._settings["compression.type"] = "none"
    sink.open([LINES, ORDERS])
    sink.write({LINES.name: whole(LINES, 1, ("a", 1)), ORDERS.name: whole(ORDERS, 1)}, frontier(1))
    start = time.monotonic()
    with pytest.raises(SinkError, match=r"a row is larger than a message may be.*raise max.message.bytes") as told:
        sink.write({LINES.name: changes(LINES, (("x" * 3000, 1), 2, 1), (("y", 2), 2, 1))}, frontier(2))
    assert told.value.where["topic"] == topic.topic
    assert int(str(told.value.where["bytes"])) > 3000
    assert "xxx" not in str(told.value)
    assert time.monotonic() - start < 10, "it is not tried again and again"
    sink.write({LINES.name: changes(LINES, (("b", 1), 2, 1))}, frontier(2))
    assert harness.content(LINES) == texts(LINES, ("a", 1), ("b", 1))


def test_a_topic_that_was_made_anew_is_filled_anew(harness: KafkaHarness, kafka: str) -> None:
    sink = harness.make()
    held = sink.open([LINES, ORDERS]).generation
    rows = [(i, None, None) for i in range(20)]
    sink.write({LINES.name: whole(LINES, 1, ("a", 1)), ORDERS.name: whole(ORDERS, 1, *rows)}, frontier(1))
    topic = f"{harness.prefix}{ORDERS.name}"
    client = AdminClient({"bootstrap.servers": kafka})
    client.delete_topics([topic])[topic].result()
    end = time.monotonic() + 10
    while topic in client.list_topics(timeout=5).topics and time.monotonic() < end:
        time.sleep(0.1)
    state = sink.open([LINES, ORDERS], held)
    assert state.missing == {ORDERS.name}
    sink.write({ORDERS.name: whole(ORDERS, 2, *rows[:3])}, frontier(2))
    assert harness.content(ORDERS) == texts(ORDERS, *rows[:3])
    assert harness.content(LINES) == texts(LINES, ("a", 1))
