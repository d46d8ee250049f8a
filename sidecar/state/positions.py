"""Source positions as JSON writes them, in manifests and in the log of epochs: keys are strings there."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.connectors.source import Positions


def written_positions(positions: Positions) -> dict[str, dict[str, int]]:
    """Positions as JSON takes them."""
    return {topic: {str(p): o for p, o in partitions.items()} for topic, partitions in positions.items()}


def read_positions(body: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    """Positions from JSON."""
    return {t: {int(p): o for p, o in ps.items()} for t, ps in body.items()}
