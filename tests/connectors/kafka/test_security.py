"""Source and sink on a broker that asks for a password, plain and over TLS; nothing wrong is silent or shows a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal as D
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import KafkaSource
from headrace.connectors.sink import SinkError
from headrace.connectors.source import SourceError
from headrace.engine.errors import HeadraceError
from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.jvm import Toolbox
from headrace.sidecar.devstack.kafka import EmbeddedKafka
from tests.contracts.sink import ORDERS, frontier, whole
from tests.contracts.source import gather
from tests.tls import identity

pytestmark = pytest.mark.servers

PASSWORD = "open-sesame"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Secured:
    """A broker with a listener for a password (`plain`) and one for a password over TLS (`encrypted`)."""

    def __init__(self, folder: Path) -> None:
        own, controller, plain, encrypted = ports.pick(4)
        self.shown, self.other = identity(folder, "broker"), identity(folder, "other")
        store = folder / "broker.pem"
        store.write_text(self.shown.key.read_text() + self.shown.certificate.read_text())
        listeners = f"PLAINTEXT://127.0.0.1:{own},ASKING://127.0.0.1:{plain},SECRET://127.0.0.1:{encrypted}"
        settings = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map":
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,ASKING:SASL_PLAINTEXT,SECRET:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        }  # fmt: skip
        for listener in ("asking", "secret"):
            settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = f'{JAAS} user_reader="{PASSWORD}";'
        self.kafka = EmbeddedKafka(folder, Toolbox.find(), own, controller, settings)
        user = {"sasl.mechanism": "PLAIN", "sasl.username": "reader", "sasl.password": PASSWORD}
        self.plain = {"bootstrap.servers": f"127.0.0.1:{plain}", "security.protocol": "SASL_PLAINTEXT", **user}
        self.encrypted = {
            "bootstrap.servers": f"127.0.0.1:{encrypted}", "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.shown.certificate), **user,
        }  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    made.kafka.start()
    yield made
    made.kafka.stop()


def opened(kind: str, settings: Mapping[str, str], name: str) -> HeadraceError:
    """The error of a source, or of a sink, that cannot be opened."""
    if kind == "source":
        source = KafkaSource(settings, wants=lambda _: True, name=name, reach=2.0)
        with pytest.raises(SourceError) as refused:
            source.open({})
        return refused.value
    sink = KafkaSink(name, settings, f"{name}.", sidecar="t", patience=2.0)
    with pytest.raises(SinkError) as failed:
        sink.open([ORDERS])
    return failed.value


@pytest.mark.parametrize("way", ["plain", "encrypted"])
def test_a_sink_writes_and_a_source_reads_it(secured: Secured, unique: str, way: str) -> None:
    settings = getattr(secured, way)
    sink = KafkaSink("bus", settings, f"{unique}.", sidecar=unique)
    sink.open([ORDERS])
    sink.write({ORDERS.name: whole(ORDERS, 1, (1, D("1.00"), "a"))}, frontier(1))
    sink.close()
    topic = f"{unique}.{ORDERS.name}"
    source = KafkaSource(settings, topics=[topic], name=unique)
    source.open({})
    found = gather(source, 1)
    source.close()
    assert [v for values in found.values() for v in values] == [b'{"customer":1,"total":"1.00","note":"a"}']


@pytest.mark.parametrize("kind", ["source", "sink"])
@pytest.mark.parametrize("way", ["plain", "encrypted"])
def test_a_wrong_password_is_told_and_not_shown(secured: Secured, unique: str, kind: str, way: str) -> None:
    settings = {**getattr(secured, way), "sasl.password": "hunter2"}
    text = str(opened(kind, settings, unique))
    assert "uthentication failed" in text
    assert settings["bootstrap.servers"] in text
    assert "hunter2" not in text
    assert PASSWORD not in text


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_a_broker_whose_certificate_is_not_known_is_told(secured: Secured, unique: str, kind: str) -> None:
    settings = {**secured.encrypted, "ssl.ca.location": str(secured.other.certificate)}
    text = str(opened(kind, settings, unique))
    assert "certificate" in text
    assert PASSWORD not in text


def test_without_a_password_nobody_is_let_in(secured: Secured, unique: str) -> None:
    bare = {"bootstrap.servers": secured.plain["bootstrap.servers"]}
    assert bare["bootstrap.servers"] in str(opened("source", bare, unique))
    producer = Producer({**bare, "message.timeout.ms": 1000, "log_level": 0})
    producer.produce(unique, b"x")
    assert producer.flush(3) in (0, 1)
