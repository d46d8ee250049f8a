"""A Prometheus histogram that takes the observations of many transactions in one call.

Always: it holds what observing each of them would leave. `metrics` makes it; a sink's thread observes one write at a time.
"""

from __future__ import annotations

import numpy as np
from prometheus_client import Histogram


class BatchHistogram(Histogram):
    """The client's histogram walks its buckets in Python for each value, which a queue of transactions makes dear."""

    def observe_all(self, amounts: np.ndarray) -> None:
        """Observe each of `amounts` [n] float64."""
        self._sum.inc(float(amounts.sum()))
        places = np.searchsorted(self._upper_bounds, amounts)
        for bucket, count in zip(
            self._buckets, np.bincount(places, minlength=len(self._buckets)).tolist(), strict=True
        ):
            if count:
                bucket.inc(count)
