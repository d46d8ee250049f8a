"""The graph of nodes: every plan once, in topological order, with the arrangements they share.

Always: a node stands behind all of its inputs; equal plans (by fingerprint) are one node; a node made after the first
step is fresh until hydrated, and nothing is stepped or asked while one is. Each node counts its readers (nodes, outputs,
tables by name, holds) and goes with the last: making and dropping a plan costs what the plan is, whatever else stands.
Single writer: the `Dataflow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from headrace.engine.arrangement import Registry
from headrace.engine.batch.batch import Batch, DiffOverflow
from headrace.engine.dataflow.arrange import ArrangeNode, TableNode
from headrace.engine.dataflow.count import CountedArrangementNode, CountNode
from headrace.engine.dataflow.enter import EnterNode
from headrace.engine.dataflow.filtered_arrangement import FilteredArrangementNode, ProjectedArrangementNode
from headrace.engine.dataflow.late_groups import LateGroups
from headrace.engine.dataflow.node import Memo, Node, fingerprint_of
from headrace.engine.dataflow.reduce import ReducedNode, ReduceNode
from headrace.engine.dataflow.schedule import Schedule
from headrace.engine.dataflow.shard import ALONE, Shard
from headrace.engine.dataflow.shard_exchange import ExchangeNode, GatherNode, ReplicateNode, placed_by
from headrace.engine.dataflow.stateless import FilterNode, ProjectNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.iteration.scope import Scope
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.engine.trace.spine import NotFaithful

N = TypeVar("N", bound=Node)


class Graph:
    """Nodes by fingerprint. `frontier`: epochs before it are complete; `shard`: which part of all rows is here; `late`: the
    recursive groups that are not evaluated up to there.

    `scope`: the loop whose body it is, or None.
    """

    def __init__(self, shard: Shard = ALONE, scope: Scope | None = None) -> None:
        self.scope = scope
        self.frontier = 0
        self.shard = shard
        self.registry = Registry()
        self.schedule = Schedule()
        self.late = LateGroups()
        self._made = 0
        self._known: dict[str, Node] = {}
        """In topological order: a node is made after its inputs."""
        self._fresh: dict[Node, None] = {}
        self._unread: dict[Node, int] = {}
        """Nodes that nothing read so far, and the frontier at which they were made."""
        self._restored: Mapping[str, Sequence[Batch]] = {}

    def intern(self, fingerprint: str, make: Callable[[], N]) -> N:
        """The node of that plan, made if there is none; its traces resume from a checkpoint that knows them.

        Raises InvariantBroken if it stands on a plan that was dropped.
        """
        found = self._known.get(fingerprint)
        if found is None:
            found = make()
            found.shard = self.shard
            if not all(map(self._stands, found.inputs)):
                found.release()
                raise InvariantBroken(
                    "a plan was built upon one that was dropped, or lies outside of its loop",
                    node=found.label,
                    hint="build all of it anew; enter it into the loop",
                )
            found.scope = self.scope
            self._made += 1
            found.place = self._made
            self._known[fingerprint] = found
            self._unread[found] = self.frontier
            self._fresh[found] = None
            self.schedule.add(found)
            for node in found.inputs:
                self.retain(node)
            self._resume(found)
        return found  # type: ignore[return-value]

    def from_outside(self, make: Callable[[Graph], Node]) -> Node:
        """What `make` makes in the graph of no loop."""
        return make(self)

    def arrange(self, source: Node, key: tuple[int, ...], order: tuple[int, ...] = ()) -> ArrangeNode:
        """`source` indexed by `key`, each key's rows in the order of `order`: one arrangement for all who read it so."""
        fingerprint = fingerprint_of("arrange", source.fingerprint, key, *order)
        return self.intern(fingerprint, lambda: ArrangeNode(fingerprint, self.registry, source, key, order))

    def indexed(self, source: Node, key: tuple[int, ...]) -> ArrangeNode:
        """As `arrange`, for those who only look keys up: nothing is arranged once more by the key that it stands by anyhow.

        That is a table's own key, or a count's or a reduce's, or one by which it was arranged; filtered and projected or
        not, while its columns stay as they are.
        """
        if isinstance(source, ArrangeNode) and source.key == key:
            return source
        if own_key(source) == key and isinstance(source, CountNode):
            fingerprint = fingerprint_of("present", source.fingerprint)
            return self.intern(fingerprint, lambda: CountedArrangementNode(fingerprint, source))
        if own_key(source) == key and isinstance(source, ReduceNode):
            fingerprint = fingerprint_of("reduced", source.fingerprint)
            return self.intern(fingerprint, lambda: ReducedNode(fingerprint, source))
        if own_key(source) == key and isinstance(source, (FilterNode, ProjectNode)):
            below = source.inputs[0]
            inner = own_key(below)
            assert inner is not None
            whole = self.indexed(below, inner)
            if isinstance(source, FilterNode):
                fingerprint = fingerprint_of("sift", source.fingerprint)
                return self.intern(fingerprint, lambda: FilteredArrangementNode(fingerprint, source, whole))
            fingerprint = fingerprint_of("project arranged", source.fingerprint)
            return self.intern(fingerprint, lambda: ProjectedArrangementNode(fingerprint, source, whole, key))
        return self.arrange(source, key)

    def by_key(self, source: Node, key: tuple[int, ...], *, exactly: bool = False) -> Node:
        """`source` with rows of one `key` on one shard; `exactly`: on the shard to which any such key belongs."""
        known = () if self.shard.is_alone else placed_by(source)
        if self.shard.is_alone or key in known or (not exactly and any(set(key) >= set(some) for some in known)):
            return source
        fingerprint = fingerprint_of("exchange", source.fingerprint, key)
        return self.intern(fingerprint, lambda: ExchangeNode(fingerprint, source, key, self.shard))

    def gathered(self, source: Node, home: int) -> Node:
        """`source` with all of its rows on the shard `home`."""
        if self.shard.is_alone:
            return source
        fingerprint = fingerprint_of("gather", source.fingerprint, home)
        return self.intern(fingerprint, lambda: GatherNode(fingerprint, source, self.shard, home))

    def to_join(self, left: Node, right: Node, keys: Sequence[tuple[int, int]]) -> tuple[ArrangeNode, ArrangeNode]:
        """Two collections arranged by pairs of key columns, so that rows that meet are on one shard.

        Without keys each row of the left meets all of the right, which therefore goes to every shard.
        """
        one, two = tuple(k for k, _ in keys), tuple(k for _, k in keys)
        if keys or self.shard.is_alone:
            left, right = self.by_key(left, one, exactly=True), self.by_key(right, two, exactly=True)
        else:
            right = self._everywhere(right)
        return self.indexed(left, one), self.indexed(right, two)

    def _everywhere(self, source: Node) -> Node:
        fingerprint = fingerprint_of("replicate", source.fingerprint)
        return self.intern(fingerprint, lambda: ReplicateNode(fingerprint, source, self.shard))

    def content(self, node: Node, as_of: int) -> Delta:
        """Rows and errors of a node at `as_of`.

        Raises NotFaithful before since and at epochs not complete, DiffOverflow; InvariantBroken for a dropped plan.
        """
        self.check_stands(node)
        if as_of >= self.frontier:
            hint = "ask before the frontier"
            raise NotFaithful("the epoch is not complete", as_of=as_of, frontier=self.frontier, hint=hint)
        self.hydrate()
        with self.shard.together():
            return node.content(as_of, {})

    def changes(self, node: Node, lower: int, upper: int) -> Delta:
        """Updates of a node at the epochs [lower, upper), each at its own. Raises as `content` does."""
        self.check_stands(node)
        if upper > self.frontier:
            hint = "ask before the frontier"
            raise NotFaithful("the epoch is not complete", window_upper=upper, frontier=self.frontier, hint=hint)
        self.hydrate()
        with self.shard.together():
            return QUIET if lower >= upper else node.changes(lower, upper, {})

    def unhydrated(self) -> Sequence[Node]:
        """The nodes made since the last step whose arrangements `hydrate` will fill."""
        return [n for n in self._fresh if any(not trace.loaded for trace in n.traces())]

    def hydrate(self) -> None:
        """Bring the arrangements made since the last step to the frontier, from the live ones.

        A node whose content overflows has failed; its `content` says so, and so its steps need not.
        """
        for _ in self.filling():
            pass

    def filling(self) -> Iterator[Node]:
        """As `hydrate`, each node given before it is filled: a dataflow left in the middle of it must not be used any more."""
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, {}
        if self.frontier == 0:
            return
        memo: Memo = {}
        for node in fresh:
            yield node
            try:
                with self.shard.together():
                    node.hydrate(self.frontier, memo)
            except DiffOverflow as why:
                node.failed = why
                memo = {}  # shards may have come to know different parts

    def resume(self, frontier: int, batches: Mapping[str, Sequence[Batch]]) -> None:
        """Continue at `frontier` with the arrangements of a checkpoint; nodes made later look there too."""
        self.frontier = frontier
        self._restored = batches
        self._unread = dict.fromkeys(self._unread, frontier)
        for node in self._known.values():
            self._resume(node)

    def _resume(self, node: Node) -> None:
        for some in node.resumable():
            traces = [trace for trace in some if not trace.loaded]
            if all(trace.name in self._restored for trace in traces):
                for trace in traces:
                    trace.load(self._restored[trace.name], self.frontier)
                return

    def forget_restored(self) -> None:
        """Once a step is made, the checkpoint's batches are the past."""
        if self._restored:
            self._restored = {}

    def check_stands(self, node: Node) -> None:
        """Raises InvariantBroken for a node that was dropped."""
        if not self._stands(node):
            raise InvariantBroken("a dropped plan was asked", node=node.label, hint="build it anew")

    def _stands(self, node: Node) -> bool:
        return self._known.get(node.fingerprint) is node

    def retain(self, node: Node) -> None:
        """One reader more."""
        node.readers += 1
        self._unread.pop(node, None)

    def let_go(self, node: Node) -> None:
        """One reader less: without any the node goes, and lets its inputs go.

        So do nodes that a step found unread: nothing was made of them since.
        """
        todo = [node]
        for unread, made in self._unread.items():
            if made < self.frontier:
                unread.readers = 1
                todo.append(unread)
        while todo:
            node = todo.pop()
            node.readers -= 1
            if not node.readers:
                node.release()
                del self._known[node.fingerprint]
                self._fresh.pop(node, None)
                self._unread.pop(node, None)
                self.schedule.remove(node)
                todo += node.inputs


def own_key(source: Node) -> tuple[int, ...] | None:
    """By what a node's rows are arranged anyhow: those of a table, of a count, of a reduce outside of loops, or arranged ones.

    Filtered or not, and projected or not, while the key is there; in a loop also of what entered it.
    """
    if isinstance(source, (TableNode, ArrangeNode)):
        return source.key
    if isinstance(source, EnterNode):
        return own_key(source.outside)
    if isinstance(source, CountNode) or (isinstance(source, ReduceNode) and source.scope is None):
        return tuple(range(source.key))
    if not isinstance(source, (FilterNode, ProjectNode)):
        return None
    inner = own_key(source.inputs[0])
    if inner is None or isinstance(source, FilterNode):
        return inner
    places = {expr.index: k for k, expr in reversed([*enumerate(source.exprs)]) if isinstance(expr, ColumnRef)}
    before, after = source.inputs[0].schema.columns, source.schema.columns
    kept = all(k in places and before[k].type == after[places[k]].type for k in inner)
    return tuple(places[k] for k in inner) if kept else None


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
