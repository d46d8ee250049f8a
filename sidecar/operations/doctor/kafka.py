"""The topics: that the broker answers, that nothing takes records out of them, and that they go back to the last checkpoint.

Always: it describes and changes nothing, and waits for a broker for seconds only. Called by `examine`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.kafka.client import Reasons, admin
from headrace.connectors.source import SourceError
from headrace.sidecar.config.config import KafkaSinkConfig, Settings, kafka_settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.operations.doctor.findings import Finding, Subject, advice, refused
from headrace.sidecar.state.batch_store import CheckpointError
from headrace.sidecar.state.generation import StateError
from headrace.sidecar.wiring.factories import notifications
from headrace.sidecar.wiring.run_states import newest_manifest

K = Subject.KAFKA
SECONDS = 5.0
"""How long a broker has for an answer."""
LEAST_RETENTION_MS = 86_400_000
"""A sidecar should be able to be down for a day."""
WEEK_MS = 604_800_000


def check_topics(settings: Settings) -> list[Finding]:
    """What is wrong with the topics of all sources and of the Kafka sinks. Advice and refusals in order of their topics."""
    config = kafka_settings(settings.config.kafka)
    servers, reasons = config["bootstrap.servers"], Reasons()
    try:
        client = admin(config, SourceError, reasons)
        there = {n: len(t.partitions) for n, t in client.list_topics(timeout=SECONDS).topics.items() if t.error is None}
        return [
            *(f for source in settings.config.sources for f in _source(client, servers, source, there)),
            *(
                f
                for sink in settings.config.sinks
                if isinstance(sink, KafkaSinkConfig) and sink.kafka is None
                for f in _views(client, servers, sink, there)
            ),
            *_checkpoint(client, settings, there),
        ]
    except (KafkaException, SourceError) as error:
        told = error.what if isinstance(error, SourceError) else error.args[0].str()
        return [
            refused(
                K,
                "broker",
                servers,
                f"no broker answers: {told}{reasons.describe()}",
                "nothing can be read or written",
                f"kafka-topics.sh --bootstrap-server {shlex.quote(servers)} --list",
            )
        ]


def _described(client: AdminClient, topics: list[str]) -> dict[str, Mapping[str, Any]]:
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    answers = client.describe_configs(asked, request_timeout=SECONDS) if asked else {}
    return {resource.name: answer.result() for resource, answer in answers.items()}


def _alter(servers: str, topic: str, change: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {shlex.quote(servers)} --alter --entity-type topics "
        f"--entity-name {shlex.quote(topic)} --add-config {change}"
    )


def _source(client: AdminClient, servers: str, source: SourceConfig, there: Mapping[str, int]) -> Iterator[Finding]:
    names = {table_topic(source.topic_prefix, n) for t in source.tables or () for n in (t.name, *t.partitions)}
    single = set() if source.type == "spark" else {f"{source.topic_prefix}.transaction", notifications(source)}
    for topic in sorted(single & there.keys()):
        if there[topic] > 1:
            yield refused(
                K,
                "topic_partitions",
                topic,
                f"it has {there[topic]} partitions",
                "its order is the commits' order: stop the "
                "connector, delete the topic, and let the connector make it with one",
                f"kafka-topics.sh --bootstrap-server {shlex.quote(servers)} --delete --topic {shlex.quote(topic)}",
            )
    for topic, config in sorted(_described(client, sorted((names | single) & there.keys())).items()):
        if "compact" in config["cleanup.policy"].value and source.type == "debezium":
            yield refused(
                K,
                "topic_policy",
                topic,
                f"its cleanup.policy is {config['cleanup.policy'].value}",
                "compaction takes events out of transactions, which are then never whole",
                _alter(servers, topic, "cleanup.policy=delete"),
            )
        retention = int(config["retention.ms"].value)
        if 0 <= retention < LEAST_RETENTION_MS:
            yield advice(
                K,
                "topic_retention",
                topic,
                f"its records are kept for {retention / 3_600_000:.1f} hours",
                "a sidecar that is down for longer cannot go on from its checkpoint",
                _alter(servers, topic, f"retention.ms={WEEK_MS}"),
            )


def _views(client: AdminClient, servers: str, sink: KafkaSinkConfig, there: Mapping[str, int]) -> Iterator[Finding]:
    mine = sorted(n for n in there if sink.topic_prefix and n.startswith(sink.topic_prefix))
    for topic, config in sorted(_described(client, mine).items()):
        policy = config["cleanup.policy"].value
        if policy != "compact":
            yield refused(
                K,
                "sink_topic_policy",
                topic,
                f"its cleanup.policy is {policy}",
                f"the sink {sink.name} refuses it: it would lose rows",
                _alter(servers, topic, "cleanup.policy=compact"),
            )


def _checkpoint(client: AdminClient, settings: Settings, there: Mapping[str, int]) -> Iterator[Finding]:
    """Whether the topics still hold the messages that follow the newest checkpoint."""
    try:
        manifest = newest_manifest(settings)
    except (OSError, CheckpointError, StateError):
        return  # `host` tells of it
    if manifest is None:
        return
    places = {(t, p): o for s in manifest.sources.values() for t, ps in s.positions.items() for p, o in ps.items()}
    spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(t, p): spec for t, p in places if t in there and p < there[t]}
    answers = client.list_offsets(asked, request_timeout=SECONDS) if asked else {}
    first = {(at.topic, at.partition): answer.result().offset for at, answer in answers.items()}
    for (topic, partition), offset in sorted(places.items()):
        where, aside = f"{topic}/{partition}", f"{settings.state}.lost"
        mend = f"mv {shlex.quote(str(settings.state))} {shlex.quote(aside)}"
        if topic not in there:
            yield refused(
                K,
                "checkpoint_topic",
                where,
                "the checkpoint names a topic that is not there",
                "a start would be refused: begin with an empty state folder once the connector has made a new snapshot",
                mend,
            )
        elif first.get((topic, partition), 0) > offset:
            yield refused(
                K,
                "checkpoint_retention",
                where,
                f"the last checkpoint goes on at {offset}, the first record left is {first[topic, partition]}",
                "what lay between is lost to this state: begin with an empty state folder once "
                "the connector has made a new snapshot",
                mend,
            )
