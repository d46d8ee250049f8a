"""The graph of nodes: every plan once, in topological order, with the arrangements they share.

Always: a node stands behind all of its inputs; equal plans (by fingerprint) are one node; a node made after the first
step is fresh until hydrated, and nothing is stepped or asked while one is. Single writer: the `Dataflow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from engine.arrangement import Registry
from engine.batch.batch import Batch, DiffOverflow
from engine.dataflow.nodes import Memo, Node, fingerprint_of
from engine.dataflow.stateful import ArrangeNode
from engine.operators.delta import Delta
from engine.trace.spine import NotFaithful

N = TypeVar("N", bound=Node)


class Graph:
    """Nodes by fingerprint. `frontier`: epochs before it are complete."""

    def __init__(self) -> None:
        self.frontier = 0
        self.registry = Registry()
        self._nodes: list[Node] = []
        self._known: dict[str, Node] = {}
        self._fresh: list[Node] = []
        self._restored: Mapping[str, Sequence[Batch]] = {}

    def intern(self, fingerprint: str, make: Callable[[], N]) -> N:
        """The node of that plan, made if there is none; its traces resume from a checkpoint that knows them."""
        found = self._known.get(fingerprint)
        if found is None:
            found = self._known[fingerprint] = make()
            self._nodes.append(found)
            self._fresh.append(found)
            self._resume(found)
        return found  # type: ignore[return-value]

    def arrange(self, source: Node, key: tuple[int, ...], order: tuple[int, ...] = ()) -> ArrangeNode:
        """`source` indexed by `key`, each key's rows in the order of `order`: one arrangement for all who read it so."""
        fingerprint = fingerprint_of("arrange", source.fingerprint, key, *order)
        return self.intern(fingerprint, lambda: ArrangeNode(fingerprint, self.registry, source, key, order))

    def content(self, node: Node, as_of: int) -> Delta:
        """Rows and errors of a node at `as_of`.

        Raises NotFaithful before since and at epochs not complete, DiffOverflow.
        """
        if as_of >= self.frontier:
            hint = "ask before the frontier"
            raise NotFaithful("the epoch is not complete", as_of=as_of, frontier=self.frontier, hint=hint)
        self.hydrate()
        return node.content(as_of, {})

    def hydrate(self) -> None:
        """Bring the arrangements made since the last step to the frontier, from the live ones.

        A node whose content overflows has failed; its `content` says so, and so its steps need not.
        """
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        if self.frontier == 0:
            return
        memo: Memo = {}
        for node in fresh:
            try:
                node.hydrate(self.frontier, memo)
            except DiffOverflow:
                node.failed = True

    def resume(self, frontier: int, batches: Mapping[str, Sequence[Batch]]) -> None:
        """Continue at `frontier` with the arrangements of a checkpoint; nodes made later look there too."""
        self.frontier = frontier
        self._restored = batches
        for node in self._nodes:
            self._resume(node)

    def _resume(self, node: Node) -> None:
        for trace in node.traces():
            if trace.name in self._restored and not trace.loaded:
                trace.load(self._restored[trace.name], self.frontier)

    def forget_restored(self) -> None:
        """Once a step is made, the checkpoint's batches are the past."""
        if self._restored:
            self._restored = {}

    def drop_unread(self, candidates: Iterable[Node], roots: Iterable[Node]) -> None:
        """Drop those of `candidates`' plans that no plan of `roots` needs."""
        kept = reachable(roots)
        gone = {n for n in reachable(candidates) if n not in kept}
        for node in reversed(self._nodes):
            if node in gone:
                node.release()
                del self._known[node.fingerprint]
        self._nodes = [n for n in self._nodes if n not in gone]
        self._fresh = [n for n in self._fresh if n not in gone]


def reachable(roots: Iterable[Node]) -> set[Node]:
    """The nodes that feed `roots`, and those themselves."""
    found: set[Node] = set()
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += node.inputs
    return found
