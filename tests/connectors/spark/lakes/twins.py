"""The same table published by the feed without a JVM, by Spark's, and by both in turns: the topics must be equal to the byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import Followed, follow
from headrace.connectors.spark.lake_feed import Feed
from tests.connectors.spark.test_publish import state_of
from tests.connectors.spark.wires import FolderWire

TABLE, TOPIC, PREFIX = "public.prices", "sup.public.prices", "sup"


class Twins:
    """Three topics of one table; `files` and `spark` make a feed."""

    def __init__(self, folder: Path, files: Callable[[], Feed], spark: Callable[[], Feed], seed: int = 0) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.feeds = {"files": files, "spark": spark}

    def wire(self, name: str) -> FolderWire:
        return FolderWire(self.folder / name)

    def publish(self, *, killed: bool = False, **options: object) -> list[Followed]:
        """All three published up to now; `killed`: each dies once before its first END is whole, and is started again."""
        turn = [self.draw.choice(["files", "spark"]) for _ in range(2)]
        done = {}
        for name, tries in (("files", ["files"] * 2), ("spark", ["spark"] * 2), ("turns", turn)):
            if killed:
                with suppress(PublishError):
                    self._follow(FolderWire(self.folder / name, fail_ends=1), tries[0])
            done[name] = self._follow(self.wire(name), tries[1], **options)
        assert done["files"] == done["spark"] == done["turns"]
        self.check()
        return done["files"]

    def _follow(self, wire: FolderWire, through: str, **options: object) -> list[Followed]:
        feed = self.feeds[through]()
        return list(follow(feed, PREFIX, wire, partitions=2, clock=lambda: 10**18, **options))

    def check(self) -> None:
        expected = self.wire("files").records(TOPIC)
        for name in ("spark", "turns"):
            assert self.wire(name).records(TOPIC) == expected, name

    def state(self) -> dict[str, object]:
        return state_of(self.wire("spark"), TOPIC)
