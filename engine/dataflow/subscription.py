"""Readings: a plan read at one's own pace, from an epoch of the past on, beside the step that every output follows.

Always: while it is held, questions at epochs ≥ its `since` are answered faithfully, whatever the dataflow gives up, and
the plan stands, whatever views are dropped; its cost is that merges keep what it may still ask. Called by whoever
reads a view at as_of: `Dataflow.read`.
"""

from __future__ import annotations

from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.graph import reachable
from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import Frontier


class Reading:
    """A reader's hold on all arrangements a collection is made from. Single writer: the reader that took it.

    `since`: the earliest epoch that may still be asked; `frontier`: what `take` gave is complete before it.
    """

    def __init__(self, collection: Collection, reader: str, since: int) -> None:
        graph = collection.flow
        graph.check_stands(collection.node)
        graph.hydrate()
        traces = [trace for node in reachable([collection.node]) for trace in node.traces()]
        for trace in traces:
            trace.check_faithful(since)
        graph.retain(collection.node)
        self.collection = collection
        self.reader = reader
        self.since = since
        self.frontier = since + 1
        self._handles = [trace.arranged.hold(reader, Frontier.at(since)) for trace in traces]
        self._held = True

    def snapshot(self, as_of: int) -> tuple[Updates, Updates]:
        """As `Collection.snapshot`, at any epoch ≥ since that is complete."""
        self._check_held()
        return self.collection.snapshot(as_of)

    def changes(self, lower: int, upper: int) -> tuple[Updates, Updates]:
        """As `Collection.changes`, of any epochs > since that are complete."""
        self._check_held()
        return self.collection.changes(lower, upper)

    def take(self, upper: int) -> tuple[Updates, Updates]:
        """(rows, errors) that changed at the epochs from `frontier` up to `upper`; what is before `upper - 1` is given up.

        With the snapshot at the first `since` before them, they are the collection as of any later epoch.
        Raises InvariantBroken for an upper that goes back.
        """
        self._check_held()
        if upper < self.frontier:
            raise InvariantBroken("a reading went back", reader=self.reader, frontier=self.frontier, upper=upper)
        found = self.collection.changes(self.frontier, upper)
        self.frontier = upper
        self.advance(upper - 1)
        return found

    def advance(self, since: int) -> None:
        """Give up questions about epochs before `since`; an earlier one changes nothing."""
        self._check_held()
        if since > self.since:
            self.since = since
            self.frontier = max(self.frontier, since + 1)
            for handle in self._handles:
                handle.advance(Frontier.at(since))

    def release(self) -> None:
        """Let go; the plan goes if nothing else reads it. Further calls change nothing."""
        if self._held:
            self._held = False
            for handle in self._handles:
                handle.release()
            self.collection.flow.let_go(self.collection.node)

    def _check_held(self) -> None:
        if not self._held:
            raise InvariantBroken("a released reading was used", reader=self.reader)
