"""The doctor on a real Kafka, Connect and sink: each finding is provoked, its command is typed, and the finding is gone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from headrace.connectors.commit_place import Lsn
from headrace.connectors.sink import SourceFrontier
from headrace.sidecar.config.config import Settings, load
from headrace.sidecar.operations.doctor.examine import Examination, examine
from headrace.sidecar.operations.doctor.findings import Finding, Severity, Subject
from headrace.sidecar.state.checkpoint import Capture, CheckpointStore
from headrace.sidecar.state.generation import take_generation
from tests.sidecar.operations.doctor_commands import checks, one, typed
from tests.sidecar.support.process import wait
from tests.sidecar.support.real import Real, Source, real

DDL = (
    "create table item (id int primary key, v int not null)",
    "insert into item select i, i from generate_series(1, 20) i",
)
QUICK = {"errors.max.retries": "1", "retriable.restart.connector.wait.ms": "300"}
VIEWS = {"sums": "select id, v from item"}


@dataclass
class Looked:
    """The configuration of a real channel, looked at."""

    shop: Real
    source: Source
    machine: Any = None
    seen: list[Finding] = field(default_factory=list)

    def settings(self) -> Settings:
        return load(self.shop.config, {})

    def look(self, *subjects: Subject) -> list[Finding]:
        self.seen = examine(self.settings(), Examination(subjects, self.source.url))
        told = json.dumps([f.as_json() for f in self.seen])
        assert "postgres:" not in told, "no password is told"
        return self.seen

    def mended(self, subject: Subject, check: str, **variables: str) -> Finding:
        found = one(self.look(subject), check)
        typed(found.command, self.shop.folder, **variables)
        wait(lambda: check not in checks(self.look(subject)), f"{check} is gone after {found.command}", 60)
        return found


@pytest.fixture(scope="module")
def channel(stack: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    """Connector and topics, without a sidecar: before the first start."""
    name = "doctorshop"
    with real(stack, tmp_path_factory.mktemp("doctor"), name) as made:
        source = made.source(name, DDL, overrides=QUICK)
        made.configure(VIEWS, of_source={"connect": stack.connect.url})
        stack.connect.wait_running(name, source.slot, 120)
        yield Looked(made, source)


def dropped(source: Source) -> bool:
    """Its slot is gone; not so while somebody reads it."""
    try:
        source.run(f"select pg_drop_replication_slot('{source.slot}')")
    except psycopg.errors.ObjectInUse:
        return False
    return True


def test_a_sound_channel_has_advice_alone(channel: Looked) -> None:
    found = channel.look(Subject.SOURCE, Subject.KAFKA, Subject.SINK)
    assert [f for f in found if f.severity is Severity.REFUSED] == []
    assert checks(found) == {"connector_password"}, "the test's connector has its password in the open"


def test_the_password_is_read_by_a_provider_and_not_shown(channel: Looked) -> None:
    config = channel.source.config
    found = one(channel.look(Subject.KAFKA), "connector_password")
    assert config["database.password"] not in json.dumps(found.as_json())
    password = channel.shop.folder / "pw"
    password.write_text(config["database.password"])
    reference = f"${{directory:{password.parent}:pw}}"
    typed(found.command.replace("${env:HEADRACE_SOURCE_PASSWORD}", reference), channel.shop.folder)
    assert "connector_password" not in checks(channel.look(Subject.KAFKA))
    _, shown = channel.shop.stack.connect.request("GET", f"/connectors/{channel.source.name}")
    assert config["database.password"] not in json.dumps(shown)
    channel.shop.stack.connect.wait_running(channel.source.name, channel.source.slot, 60)


def test_a_wrong_setting_is_what_run_refuses(channel: Looked) -> None:
    connect, name = channel.shop.stack.connect, channel.source.name
    _, body = connect.request("GET", f"/connectors/{name}/config")
    connect.request(
        "PUT", f"/connectors/{name}/config", {**body, "skipped.operations": "t", "tombstones.on.delete": "false"}
    )
    assert channel.mended(Subject.KAFKA, "setting_skipped.operations").severity is Severity.REFUSED
    assert channel.mended(Subject.KAFKA, "setting_tombstones.on.delete").severity is Severity.ADVICE


def test_a_paused_connector_is_resumed(channel: Looked) -> None:
    connect, name = channel.shop.stack.connect, channel.source.name
    connect.request("PUT", f"/connectors/{name}/pause")
    wait(lambda: "connector_paused" in checks(channel.look(Subject.KAFKA)), "it is told", 30)
    channel.mended(Subject.KAFKA, "connector_paused")


def test_a_failed_task_tells_its_trace(channel: Looked) -> None:
    channel.shop.pause(channel.source)
    wait(lambda: dropped(channel.source), "a task that was just starting lets go of the slot too", 60)
    channel.source.run(
        "update item set v = v + 1", "create role of_doctor", "drop role of_doctor", "update item set v = v + 1"
    )
    channel.shop.resume(channel.source)
    wait(lambda: "connector_failed" in checks(channel.look(Subject.KAFKA)), "it fails", 180)
    found = one(channel.seen, "connector_failed")
    assert "no longer available on the server" in found.what or "Caused by" in found.what
    assert "restart?includeTasks=true" in found.command


def test_topics_that_lose_records(channel: Looked) -> None:
    topic, admin = (
        f"{channel.source.name}.public.item",
        AdminClient({"bootstrap.servers": channel.shop.stack.kafka.bootstrap}),
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)  # type: ignore[attr-defined]
    for name, value in (("cleanup.policy", "compact"), ("retention.ms", "3600000")):
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([resource])[resource].result()
    bus = f"{channel.shop.name}.views.sums"
    admin.create_topics([NewTopic(bus, 1, 1)])[bus].result()
    for check in ("topic_policy", "topic_retention", "sink_topic_policy"):
        channel.mended(Subject.KAFKA, check)


@pytest.mark.parametrize("check", ["checkpoint_topic", "checkpoint_retention"])
def test_a_checkpoint_from_before_what_is_left(channel: Looked, check: str) -> None:
    settings, topic = channel.settings(), f"{channel.source.name}.public.item"
    if check == "checkpoint_topic":
        topic = f"{channel.source.name}.public.gone"
    else:
        admin = AdminClient({"bootstrap.servers": channel.shop.stack.kafka.bootstrap})
        topic = f"{channel.source.name}.public.trimmed"  # one that no other test reads
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        producer = Producer({"bootstrap.servers": channel.shop.stack.kafka.bootstrap})
        for _ in range(10):
            producer.produce(topic, b"x")
        producer.flush()
        gone = TopicPartition(topic, 0, 6)
        admin.delete_records([gone])[gone].result()
    generation, _ = take_generation(settings.state)
    generation.ready.touch()
    at = {channel.source.name: SourceFrontier({topic: {0: 5}}, Lsn(1), 1)}
    CheckpointStore(generation, "test").write(Capture(epoch=1, sources=at, write=dict))
    channel.mended(Subject.KAFKA, check)
    assert not settings.state.exists()
    shutil.rmtree(f"{settings.state}.lost")


def test_a_sink_that_others_write_and_alter(channel: Looked, tmp_path: Path) -> None:
    shop, reader = channel.shop, f"r_{channel.source.name}"
    shop.start()
    assert shop.stop() == 0
    with psycopg.connect(shop.sink_url, autocommit=True) as db:
        db.execute(f"create role {reader}")
        db.execute(f"grant select, insert, delete on headrace.sums to {reader}")
        db.execute("create function f() returns trigger language plpgsql as 'begin return new; end'")
        db.execute("create trigger mine before insert on headrace.sums for each row execute function f()")
    try:
        assert checks(channel.look(Subject.SINK)) == {"sink_writers", "sink_trigger"}
        for check in ("sink_writers", "sink_trigger"):
            channel.mended(Subject.SINK, check, SINK_URL=shop.sink_url)
        with psycopg.connect(shop.sink_url, autocommit=True) as db:
            db.execute("alter table headrace.sums drop column v")
        channel.mended(Subject.SINK, "sink_altered", SINK_URL=shop.sink_url)
    finally:
        with psycopg.connect(shop.sink_url, autocommit=True) as db:
            db.execute(f"drop owned by {reader}; drop role {reader}")
