"""What many observations at once leave is what one after the other leave."""

from __future__ import annotations

import numpy as np
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from headrace.sidecar.telemetry.batch_histogram import BatchHistogram

BOUNDS = (0.5, 1.0, 4.0)


def test_it_holds_what_one_observation_after_the_other_leaves() -> None:
    one, many = CollectorRegistry(), CollectorRegistry()
    each = Histogram("h", "of each", ["view"], buckets=BOUNDS, registry=one).labels("v")
    batch = BatchHistogram("h", "of each", ["view"], buckets=BOUNDS, registry=many).labels("v")
    for amounts in ([0.25, 0.5, 0.75, 1.0, 3.0, 4.0, 9.0], [], [-1.0, 4.5], [0.5] * 100):
        for amount in amounts:
            each.observe(amount)
        batch.observe_all(np.array(amounts))
        told = [
            [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
            for registry in (one, many)
        ]
        assert told[0] == told[1]
