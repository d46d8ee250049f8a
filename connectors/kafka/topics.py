"""The topics of a sink: their names, that they are there, and that they are compacted.

Always: a topic is made with the policy its records need, and a topic made otherwise is refused by name, not changed.
Called by the sink at `open`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from headrace.connectors.kafka.client import Raise

COMPACT = {"cleanup.policy": "compact"}
"""Of views: every record is its key's whole state."""

FRONTIER = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
"""Of the frontier: a record a flush, of which the last counts; short segments keep it small."""

_LEGAL = re.compile(r"^[a-zA-Z0-9._-]{1,249}$")


def check_names(names: Sequence[str], error: Raise) -> None:
    """Raises `error` for a name that Kafka does not take, or for two that it cannot tell apart."""
    seen: dict[str, str] = {}
    for name in names:
        if not _LEGAL.fullmatch(name) or name in (".", ".."):
            raise error("Kafka takes no topic of this name", hint="use letters, digits, '.', '_', '-'", topic=name)
        other = seen.setdefault(name.replace(".", "_"), name)
        if other != name:
            raise error("Kafka's metrics cannot tell two topics apart", hint="rename one", topic=name, other=other)


def ensure(
    admin: AdminClient, wanted: Mapping[str, Mapping[str, str]], partitions: Mapping[str, int], replication: int,
    error: Raise, timeout: float,
) -> dict[str, int]:  # fmt: skip
    """Make the topics that are not there; the partitions of each. Raises KafkaException; `error` for a wrong policy."""
    there = {
        name: len(t.partitions) for name, t in admin.list_topics(timeout=timeout).topics.items() if t.error is None
    }
    fresh = [
        NewTopic(name, num_partitions=partitions[name], replication_factor=replication, config=dict(config))
        for name, config in wanted.items()
        if name not in there
    ]
    if fresh:
        for name, made in admin.create_topics(fresh, operation_timeout=timeout, request_timeout=timeout).items():
            try:
                made.result()
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise error(
                        f"the topic cannot be made: {failure.args[0].str()}",
                        hint="grant CREATE on it, or make it with cleanup.policy=compact", topic=name,
                    ) from failure  # fmt: skip
    _check_policies(admin, [name for name in wanted if name in there], error, timeout)
    return {name: there.get(name, partitions[name]) for name in wanted}


def _check_policies(admin: AdminClient, names: Sequence[str], error: Raise, timeout: float) -> None:
    if not names:
        return
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    for resource, answer in admin.describe_configs(asked, request_timeout=timeout).items():
        policy = answer.result()["cleanup.policy"].value
        if policy != "compact":
            raise error(
                "the topic would lose rows", hint="set cleanup.policy=compact, or choose another topic_prefix",
                topic=resource.name, policy=policy,
            )  # fmt: skip
