"""The node of window functions: it keeps nothing but reads the arrangement of its input by group.

Always: what a group shows before and in a step is worked out from that arrangement, so that a restored or hydrated node
goes on as if it had always run. Single writer: the dataflow that holds it. Called by `headrace.views.render`.
"""

from __future__ import annotations

from functools import partial

from headrace.engine.batch.keys import key_lanes
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.node import Memo, Node, fingerprint_of, merged
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.group_versions import group
from headrace.engine.operators.window import Window, window_changes, window_content, window_of_groups


def windowed(collection: Collection, window: Window) -> Collection:
    """Each row with the values of the window's functions behind its columns."""
    flow = collection.flow
    orders = [(o.column, o.descending, o.begins_with_nulls) for o in window.orders]
    if flow.scope is not None:
        spelled = [orders, *window.functions]
        return collection.of_groups("window", window.key, spelled, partial(window_of_groups, window), window.schema)
    arranged = flow.arrange(flow.by_key(collection.node, tuple(window.key)), window.key)
    fingerprint = fingerprint_of("window", arranged.fingerprint, orders, *window.functions)
    node = flow.intern(fingerprint, lambda: WindowNode(fingerprint, arranged, window))
    return Collection(flow, node, window.schema)


class WindowNode(Node):
    """The rows arranged, with the window's values."""

    label = "window"

    def __init__(self, fingerprint: str, arranged: ArrangeNode, window: Window) -> None:
        super().__init__(fingerprint, window.schema, [arranged])
        self._arranged = arranged
        self._window = window
        self._types = tuple(window.input.columns[k].type for k in window.key)
        self._reader = arranged.trace.read_by(f"{self.label}-{fingerprint[:12]}")

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The corrections of the groups that change."""
        delta = self._arranged.delta
        if delta.rows is None or not len(delta.rows):
            return merged(QUIET, delta)
        keys = self._arranged.trace.layout.keys_of(delta.rows)
        found = group(keys)
        matches = self._arranged.trace.spine.gather(keys.take(found.first), lower - 1)
        if not len(matches):
            return merged(QUIET, delta)
        content = Updates(matches.rows(), matches.times, matches.diffs)
        changed = window_changes(self._window, content, matches.probe, delta.rows, found.ids, lower - 1)
        return merged(changed, Delta(None, delta.errors))

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The values of the input's content."""
        content = self._arranged.content(as_of, memo)
        if content.rows is None or not len(content.rows):
            return merged(QUIET, content)
        ids = group(key_lanes(content.rows.rows, self._window.key, self._types)).ids
        return merged(window_content(self._window, content.rows, ids, as_of), Delta(None, content.errors))

    def release(self) -> None:
        """Stop reading the arrangement."""
        self._reader.release()
