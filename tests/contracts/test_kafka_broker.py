"""The broker contract with the library on a real broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.contracts.broker import BrokerContract, Held


class TestKafkaBroker(BrokerContract):
    @pytest.fixture
    def held(self, kafka: str, unique: str) -> Held:
        settings = {"bootstrap.servers": kafka}
        admin = AdminClient(settings)  # whose end would end what it was asked
        admin.create_topics([NewTopic(unique, 2, 1)])[unique].result()
        return Held(settings, unique, SimpleNamespace(producer=Producer, consumer=Consumer))
