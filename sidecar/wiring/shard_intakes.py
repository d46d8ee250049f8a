"""What a worker is told to read, where `engine.intake` is `shards`, and what it makes of that.

Invariant: a worker opens the same transport and format as the driver would, for its share of the partitions. It is sent only
the configuration that these need, and no sink's password. Called by wiring, and by workers with what wiring sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Config, Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.execution.workers.channel import Channel
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.kept_rows import KeptRows
from headrace.sidecar.intake.shard_reader import ShardReader, reader_of
from headrace.sidecar.intake.shard_source import Begin, ShardSource
from headrace.sidecar.state.spill import Spill
from headrace.sidecar.wiring.factories import make_format, make_source, spill_bytes


@dataclass(frozen=True)
class ReadShare:
    """One source, to be read by every worker: its own partitions. `schemas`: of all tables that may come."""

    config: Config
    path: Path
    source: SourceConfig
    schemas: Mapping[str, Schema]

    def __call__(self, channel: Channel, kept: KeptRows, scratch: Path) -> None:
        """Read until the channel closes. Raises ChannelClosed."""
        settings = Settings(self.config, self.path)
        format_ = make_format(self.source, self.path)
        source = make_source(settings, self.source, format_, mine=partial(_is_mine, kept.shard, kept.count))
        # workers of another count, which take over, write beside these for a moment
        name = f"spilling.{self.source.name}.{kept.shard} of {kept.count}"
        spill = Spill(scratch, spill_bytes(settings) // kept.count, name)
        ShardReader(channel, source, format_, dict(self.schemas), kept, spill).serve()


def _is_mine(shard: int, count: int, topic: str, partition: int) -> bool:
    return reader_of(topic, partition, count) == shard


def make_shard_source(
    settings: Settings, source: SourceConfig, schemas: Mapping[str, Schema], flow: Flow, begin: Begin
) -> ShardSource:
    """The transport of a source that the workers read. `begin`: who has them begin."""
    assert isinstance(flow, Workers), "the configuration asks for workers"
    bare = source.model_copy(update={"database": None, "connect": None})
    config = settings.config.model_copy(
        update={"sources": [bare], "sinks": [], "engine": type(settings.config.engine)()}
    )
    return ShardSource(source.name, flow, ReadShare(config, settings.path, bare, schemas), begin)
