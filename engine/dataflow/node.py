"""The nodes of a dataflow: each turns the deltas of its inputs into its own, once a step, in topological order.

Always: a node whose inputs are quiet does nothing; what it sends lies in [lower, upper) of the step; the errors of its
inputs pass through it, beside its own. A node in which a multiplicity overflowed has failed, and so has every node
behind it: it says so once, as an error update, and nothing more. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.overflow import overflowed
from headrace.engine.dataflow.owned_trace import Trace, times_within
from headrace.engine.dataflow.shard import ALONE, Shard
from headrace.engine.dataflow.tags import OPERATORS
from headrace.engine.encoding import Encoder
from headrace.engine.errors import InvariantBroken
from headrace.engine.iteration.scope import Scope
from headrace.engine.operators.chunked_delta import Pieced, joined, whole
from headrace.engine.operators.delta import QUIET, Delta, concat
from headrace.engine.operators.tags import TAGS
from headrace.engine.schema import Schema

Memo = dict["Node", Delta]
"""Content of nodes at one epoch, or their changes of one window, while a question is answered."""


def fingerprint_of(operator: str, *parts: object) -> str:
    """A stable name for a plan: 40 hex digits of its operator (of `OPERATORS`) and what makes it; no Python name counts."""
    if operator not in OPERATORS:
        raise InvariantBroken("an operator without a fixed name", operator=operator, hint="add it to OPERATORS")
    return hashlib.sha256(_ENCODER.encode([operator, *parts]).encode()).hexdigest()[:40]


_ENCODER = Encoder(TAGS)


def merged(own: Delta, *upstream: Delta) -> Delta:
    """A node's own delta, in pieces or not, with the errors of its inputs."""
    if isinstance(own, Pieced):
        return joined([own, merged(QUIET, *upstream)])
    errors = own.errors
    for delta in upstream:
        if delta.errors is not None:
            errors = delta.errors if errors is None else concat([delta.errors, errors])
    if own.rows is None and errors is None:
        return QUIET
    return own if errors is own.errors else Delta(own.rows, errors)


class Node:
    """One operator. `delta`: what it sent in this step; `label`: for people, and for names of
    arrangements in checkpoints, wherefore it never changes (`LABELS`).

    `failed`: why what the node keeps is no longer to be used: a multiplicity overflowed here or in an input. `readers`: how many
    read it; the graph counts them. `takes_pieces`: whether it works on its inputs' updates one by one, so that of an input that
    nothing else reads it takes a piece at a time, and sends them so. `is_kept`: whether its content lies in a trace, and costs as
    little when it is asked for again. `scope`: the loop whose body it is part of. `waits_for_input`: whether, after the first
    step, it has nothing to do while its inputs are quiet. `place`: behind that of all inputs; `consumers`: the nodes that have it
    as input, but for filters that want one constant of a column: those are in `switches`, by column and constant, and for those
    in `watchers`, which have something to do only once it fails, as it is not in their `woken_by`.
    `shard`: where what data decides is agreed upon with others. `replaces`: whether a row that takes the place of another
    stands right behind it in `delta`, so that those that do not differ in what is read of them are easily found.
    """

    label = "node"
    shard: Shard = ALONE
    scope: Scope | None = None
    failed: DiffOverflow | None = None
    readers = 0
    takes_pieces = False
    is_kept = False
    waits_for_input = True
    place = 0
    replaces = False
    _owes = False

    def __init__(self, fingerprint: str, schema: Schema, inputs: Sequence[Node]) -> None:
        self.fingerprint = fingerprint
        self.schema = schema
        self.inputs = self.woken_by = tuple(inputs)
        self.consumers: dict[Node, None] = {}
        self.watchers: dict[Node, None] = {}
        self.switches: dict[int, dict[int | str, dict[Node, None]]] = {}
        self.delta: Delta = QUIET

    def step(self, lower: int, upper: int) -> None:
        """Take the inputs' deltas of [lower, upper) and leave one's own in `delta`."""
        is_quiet, failed = True, self.failed
        for node in self.inputs:
            if node.delta is not QUIET:
                is_quiet = False
                if isinstance(node.delta, Pieced) and (not self.takes_pieces or node.readers > 1):
                    node.made(lower)
            failed = failed or node.failed
        if is_quiet and not self.is_due(lower):
            self.delta = QUIET
            return
        delta = self.failure(lower) if failed else self._run_or_fail(lower, upper)
        if isinstance(delta, Pieced):
            self.delta = Pieced(self._checked_pieces(delta.take(), lower, upper))
        elif delta is QUIET or (self.inputs and delta is self.inputs[0].delta):
            self.delta = delta  # looked at where it was made
        else:
            self.delta = self._checked(delta, lower, upper)

    def _checked_pieces(self, pieces: Iterator[Delta], lower: int, upper: int) -> Iterator[Delta]:
        """The pieces; a multiplicity that overflows on the way is that of this node."""
        try:
            for piece in pieces:
                yield self._checked(piece, lower, upper)
        except DiffOverflow as why:
            self.failed = why
            raise

    def _checked(self, delta: Delta, lower: int, upper: int) -> Delta:
        rows, errors = delta
        if not (times_within(rows, lower, upper) and (errors is None or times_within(errors, lower, upper))):
            raise InvariantBroken("an update was sent outside of its step", node=self.label, lower=lower, upper=upper)
        return delta

    def made(self, lower: int) -> Delta:
        """The delta of the step that begins at `lower`, with no piece of it still to be made."""
        if isinstance(self.delta, Pieced):
            try:
                self.delta = whole(self.delta)
            except DiffOverflow as why:
                self.failed = why
                self.delta = Delta(None, overflowed(lower, why))
        return self.delta

    def is_due(self, lower: int) -> bool:
        """True if there is anything to do in a step that begins at `lower`."""
        for node in self.inputs:
            if node.delta is not QUIET:
                return True
        return self._owes or self.is_eager(lower)

    def fail(self, why: DiffOverflow) -> None:
        """Its state is lost; the next step says so."""
        self.failed = why
        self._owes = True

    def _run_or_fail(self, lower: int, upper: int) -> Delta:
        try:
            return self.run(lower, upper)
        except DiffOverflow as why:
            self.fail(why)
        return self.failure(lower)

    def failure(self, lower: int) -> Delta:
        """What a node sends that has failed, or an input of it: that it has, once, and the errors of its inputs."""
        lost = next((node.failed for node in self.inputs if node.failed), None)
        if lost is not None:
            if self.failed and not self._owes:
                return QUIET
            self.failed = self.failed or lost
        own = Delta(None, overflowed(lower, self.failed)) if self._owes else QUIET
        self._owes = False
        return merged(own, *(node.made(lower) for node in self.inputs))

    def is_eager(self, lower: int) -> bool:  # noqa: ARG002
        """True if the node has something to say at `lower` though its inputs are quiet."""
        return False

    def run(self, lower: int, upper: int) -> Delta:
        """The delta of this step."""
        raise NotImplementedError

    def content(self, as_of: int, memo: Memo) -> Delta:
        """Rows and errors at `as_of`, not consolidated, all times `as_of`. Raises NotFaithful before since, DiffOverflow."""
        if self.failed:
            raise self.failed
        found = memo.get(self)
        if found is None:
            found = memo[self] = Delta(*map(_some, whole(self.compute(as_of, memo))))
        return found

    def content_in_pieces(self, as_of: int, memo: Memo) -> Delta:
        """As `content`, asked once by each reader: in pieces where these are many, and then not remembered.

        Nor are they made twice: where several read what lies in no trace, it is made whole. What shards do together to
        answer is done when this returns; the pieces may raise DiffOverflow.
        """
        if self in memo or (self.readers > 1 and not self.is_kept):
            return self.content(as_of, memo)
        if self.failed:
            raise self.failed
        found = self.compute_in_pieces(as_of, memo)
        return found if isinstance(found, Pieced) else Delta(*map(_some, found))

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """What `content` answers, from the inputs' content or from the node's own trace; in pieces where these are many."""
        raise NotImplementedError

    def compute_in_pieces(self, as_of: int, memo: Memo) -> Delta:
        """What `content_in_pieces` answers."""
        return self.compute(as_of, memo)

    def errors(self, as_of: int, memo: Memo) -> Updates | None:
        """The errors of `content`, for those who need no more: where a node knows them, they cost no look at its rows."""
        if self.failed:
            raise self.failed
        found = memo.get(self)
        return _some(self.compute_errors(as_of, memo)) if found is None else found.errors

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:
        """What `errors` answers."""
        return self.content(as_of, memo).errors

    def changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The updates of the epochs [lower, upper), which are complete, each at its own epoch, not consolidated.

        `memo`: of one window. Raises NotFaithful unless the epoch before `lower` can be asked too, DiffOverflow.
        """
        if self.failed:
            raise self.failed
        found = memo.get(self)
        if found is None:
            found = memo[self] = Delta(*map(_some, whole(self.compute_changes(lower, upper, memo))))
        return found

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """What `changes` answers, from the inputs' changes or from the node's own trace; in pieces where these are many.

        Here: the difference of the contents at each epoch at which an input changes, which holds for any node.
        """
        return self.differences([node.changes(lower, upper, memo) for node in self.inputs], lower, upper)

    def differences(self, inputs: Sequence[Delta], lower: int, upper: int) -> Delta:
        """The difference of the contents at each epoch at which one of `inputs` has changes."""
        some = [updates.times for delta in inputs for updates in delta if updates is not None]
        epochs = self.shard.union(np.concatenate([np.arange(lower, min(1, upper)), *some]))
        parts: list[Delta] = []
        for epoch in epochs.tolist():
            before = self.content(epoch - 1, {}) if epoch else QUIET
            for delta, sign in ((before, -1), (self.content(epoch, {}), 1)):
                parts.append(Delta(*(_moved(updates, epoch, sign) for updates in delta)))
        return Delta(concat([d.rows for d in parts]), concat([d.errors for d in parts]))

    def has_turned(self, since: int) -> bool:  # noqa: ARG002
        """Whether it became late, or came back, since: a dataflow beside this one that began then has it as it was."""
        return False

    def later(self) -> Iterable[int]:
        """Of a node in a loop: the later rounds in which it has something to say though its inputs be quiet."""
        return ()

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """Bring one's own traces to `frontier`, from the inputs' content; the inputs are hydrated already."""

    def traces(self) -> Sequence[Trace]:
        """The arrangements that this node writes."""
        return ()

    def resumable(self) -> Sequence[Sequence[Trace]]:
        """With which arrangements it may go on from a checkpoint: with the first of these sets that is there."""
        return (self.traces(),)

    def read_anew(self) -> None:
        """In a loop: arrangements from outside are others now, of the same content."""

    def beside(self) -> Mapping[str, int]:
        """The bytes of what the node keeps beside its arrangements, by the name of the one to which they are counted."""
        return {}

    def release(self) -> None:
        """Let go of everything that is shared."""


def _moved(updates: Updates | None, epoch: int, sign: int) -> Updates | None:
    return None if updates is None else Updates(updates.rows, np.full(len(updates), epoch), updates.diffs * sign)


def _some(updates: Updates | None) -> Updates | None:
    return updates if updates is not None and len(updates) else None
