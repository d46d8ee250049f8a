"""The node of a recursive group that is kept by state, without rounds in the dataflow's times.

Always: a step follows its epochs one after the other, each by an Update or by Bootstrap; the content is that of the state, less
what changed after the epoch that is asked for. A group that takes more work than a step has is late: its rows stay as they were,
with an error beside them, until a later step gives all that it missed. Of several shards one holds the whole group, which the
group's fingerprint chooses, and is sent what the group reads. Called by whoever builds plans: `recursive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from headrace.engine.arrangement import Registry
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.graph import Graph
from headrace.engine.dataflow.node import Memo, Node, fingerprint_of, merged
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.row_limit import MostRows
from headrace.engine.dataflow.saved_recursion import SavedRecursion
from headrace.engine.operators.delta import QUIET, Delta, concat, errors_at, keep, negated, rows_of
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.recursion.bootstrap import Over
from headrace.engine.recursion.late import LATE, Evaluation, Standing
from headrace.engine.recursion.portions import Portions
from headrace.engine.recursion.program import Program
from headrace.engine.recursion.switching import SWITCH, Followed, Left, SparseRecursion, Strategy
from headrace.engine.schema import BOOLEAN, Column, Schema

Changes = Mapping[int, Updates]
"""Of relations from outside, by their numbers."""


def recursive(
    flow: Graph,
    program: Program,
    outside: Sequence[Collection],
    strategy: Strategy = Strategy.AUTO,
    switch: float | None = None,
    limit: MostRows | None = None,
) -> tuple[Collection, ...]:
    """The rows of a program's variables, each once, and behind its columns whether it came in the last round.

    `outside`: the relations that it reads, by their numbers. `limit`: how many rows a variable may have before all are in error.
    """
    if limit is not None:
        program = replace(program, most=limit.most)
    rules = [
        (r.head, [(a.relation, a.negated) for a in r.atoms], r.equal, r.columns, r.conditions, r.values, *r.guards)
        for r in program.rules
    ]
    types = [[(c.type, c.nullable) for c in schema.columns] for schema in program.schemas]
    inputs = [c.fingerprint for c in outside]
    # Where none is given it is spelled as it always was, so that what was saved is found.
    spelled_switch = repr(SWITCH) if switch is None else f"fixed {switch!r}"
    spelled = (types, program.variables, rules, program.last, program.copies, strategy.value, spelled_switch)
    told = [] if limit is None else [limit.most, *limit.said]
    fingerprint = fingerprint_of("recursion", *inputs, *spelled, program.extreme, *told)
    last = Column("last", BOOLEAN, nullable=False)
    schemas = [Schema((*program.schemas[v].columns, last)) for v in range(program.variables)]
    state = SparseRecursion(program, strategy, switch, *([] if limit is None else [partial(_said, limit)]))
    home = int(fingerprint[:8], 16) % flow.shard.count
    read = [flow.gathered(c.node, home) for c in outside]
    name = "a recursion" if limit is None else limit.said[0]
    node = flow.intern(fingerprint, lambda: RecursiveNode(fingerprint, flow, name, read, state, schemas))
    others = (_other(flow, node, variable) for variable in range(1, program.variables))
    return Collection(flow, node, schemas[0]), *others


def _said(limit: MostRows, over: Over, rows: pa.RecordBatch) -> str:
    return limit.text(over.variable, over.round, over.so_far, over.more, limit.shown(rows))


def _other(flow: Graph, node: RecursiveNode, variable: int) -> Collection:
    fingerprint, schema = fingerprint_of("recursion", node.fingerprint, variable), node.schemas[variable]
    return Collection(flow, flow.intern(fingerprint, lambda: OtherVariableNode(fingerprint, node, variable)), schema)


class RecursiveNode(Node):
    """A recursive group; its rows are those of the first variable.

    `state` is its own. `sent`: what leaves of each variable in this step; nothing where the node did not run.
    """

    label = "recursion"
    is_kept = True
    waits_for_input = False

    def __init__(
        self,
        fingerprint: str,
        flow: Graph,
        name: str,
        outside: Sequence[Node],
        state: SparseRecursion,
        schemas: Sequence[Schema],
    ) -> None:
        super().__init__(fingerprint, schemas[0], outside)
        self.state = state
        self.schemas = tuple(schemas)
        self.sent: list[Delta] = []
        self._turned = -1  # the frontier at which it last became late, or came back
        self._past = _Past(flow.registry, fingerprint, schemas)
        self._saved = SavedRecursion(flow.registry, fingerprint, state)
        self._late = flow.late
        self._left: Evaluation[Changes, Followed] | None = None
        self._said = f"{LATE}{name} takes more than a step may, and is evaluated between steps; it comes back by itself"

    def step(self, lower: int, upper: int) -> None:
        """As of any node; what was sent in the step before is not sent again."""
        self.sent = []
        super().step(lower, upper)
        if self.failed:
            self._late.remove(self)

    def is_due(self, lower: int) -> bool:
        """Also where it is late, and comes back."""
        back = self._left is not None and (self._left.ended or not self._late.step_work)
        return (back and self._late.returns) or super().is_due(lower)

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """What leaves at each epoch, in order."""
        deltas = [node.delta.rows for node in self.inputs]
        some = [rows.times for rows in deltas if rows is not None]
        epochs = np.unique(np.concatenate(some)).tolist() if some else []
        if self._left is None:
            steps = self._followed([(now, self._of(deltas, now)) for now in epochs], upper)
        else:
            steps = self._returned([self._of(deltas, now) for now in epochs], upper)
        errors = concat([_errors(followed, now) for followed, now in steps])
        for variable, past in enumerate(self._past.changes):
            rows = concat([self._rows(variable, followed.variables[variable], now) for followed, now in steps])
            self.sent.append(Delta(rows, None if variable else errors))
            past.append(self.sent[-1])
        return merged(self.sent[0], *(node.delta for node in self.inputs))

    # Being late.

    @property
    def standing(self) -> Standing:
        """How it stands, while it is late."""
        assert self._left is not None, "it is late"
        ended = self._left.ended or self.failed is not None
        return Standing(self._saved.late, self._left.work, *self._left.progress[1:3], ended)

    is_told = True
    """As `LateGroup.is_told`: the shard that holds it tells of it."""

    def has_turned(self, since: int) -> bool:
        """As of any node."""
        return self._turned > since

    def go_on(self, work: int) -> None:
        """As `LateGroup.go_on`."""
        if self._left is not None and not self.failed:
            self._left.advance(work)

    def _followed(self, changes: Sequence[tuple[int, Changes]], upper: int) -> list[tuple[Followed, int]]:
        """The changes of each epoch, as far as the step has work for them."""
        steps: list[tuple[Followed, int]] = []
        done, most = 0, self._late.step_work
        for now, some in changes:
            if self._left is not None:
                self._left.add(some)
                continue
            self.state.most_work = max(most - done, 1) if most else 0
            one: Evaluation[Changes, Followed] = Evaluation(self._following)
            one.add(some)
            if one.advance(self.state.most_work, forecast=True):
                assert one.followed is not None
                steps.append((one.followed, now))
                done += one.work
            else:
                self._leave(one, now, upper)
                steps.append((self._message(1), now))
        return steps

    def _returned(self, changes: Sequence[Changes], upper: int) -> list[tuple[Followed, int]]:
        """What all that was missed comes to, if that is known now, or with no more work than a step has."""
        assert self._left is not None, "it is late"
        most, ended = self._late.step_work, self._left.ended
        self.state.most_work = most
        for some in changes:
            self._left.add(some)
        if not self._late.returns or (most and not (ended and self._left.advance(most, forecast=True))):
            return []
        self._left.advance(0)
        found = [(self.state.returned(), upper - 1), (self._message(-1), upper - 1)]
        self._left, self._saved.late, self._turned = None, -1, upper
        self._late.remove(self)
        return found

    def _following(self, changes: Sequence[Changes]) -> Portions[Followed]:
        """All of them as one change."""
        found: dict[int, list[Updates]] = {}
        for relation, updates in ((r, u) for some in changes for r, u in some.items()):
            found.setdefault(relation, []).append(updates)
        together = {relation: concat(parts) for relation, parts in found.items()}
        return self.state.following({relation: some for relation, some in together.items() if some is not None})

    def _leave(self, left: Evaluation[Changes, Followed], since: int, frontier: int) -> None:
        self.state.leave()
        self.state.most_work = self._late.step_work
        self._left, self._saved.late, self._turned = left, since, frontier
        self._late.add(self)

    def _message(self, diff: int) -> Followed:
        return Followed(self.state.nothing().variables, [self._said], [diff])

    # Epochs, questions and checkpoints.

    def _of(self, deltas: Sequence[Updates | None], now: int) -> dict[int, Updates]:
        """The changes of one epoch, by the number of their relation."""
        found = {}
        for relation, rows in zip(self.state.program.outside, deltas, strict=True):
            some = None if rows is None else keep(rows, rows.times == now)
            if some is not None and len(some):
                found[relation] = some
        return found

    def _rows(self, variable: int, left: Left, now: int) -> Updates | None:
        """What leaves of a variable at an epoch."""
        if not len(left.diffs):
            return None
        batch = rows_of(left.rows, self.schemas[variable].arrow, len(left.diffs))
        return Updates(batch, np.full(len(left.diffs), now), left.diffs)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The state, less what changed after `as_of`; and the errors of what it reads."""
        return self.content_of(0, as_of, memo)

    def content_of(self, variable: int, as_of: int, memo: Memo) -> Delta:
        """As `compute`, of a variable."""
        self._past.check_faithful(as_of)
        own = self._rows(variable, self.state.content(variable), as_of)
        later = [_undone(delta.rows, as_of) for delta in self._past.changes[variable]]
        return Delta(concat([own, *later]), self.compute_errors(as_of, memo))

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:
        """As `compute`, without a look at the rows."""
        self._past.check_faithful(as_of)
        late = None if self._left is None else _errors(self._message(1), as_of)
        own = concat([_errors(self.state.failed(), as_of), late])
        later = [_undone(delta.errors, as_of) for delta in self._past.changes[0]]
        return concat([own, *later, *(node.errors(as_of, memo) for node in self.inputs)])

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """What left at these epochs."""
        return self.changes_of(0, lower, upper, memo)

    def changes_of(self, variable: int, lower: int, upper: int, memo: Memo) -> Delta:
        """As `compute_changes`, of a variable; the errors are the first one's."""
        if lower:
            self._past.check_faithful(lower - 1)
        parts = [
            Delta(*(None if u is None else keep(u, (u.times >= lower) & (u.times < upper)) for u in delta))
            for delta in self._past.changes[variable]
        ]
        inputs = [node.changes(lower, upper, memo).errors for node in self.inputs]
        return Delta(concat([d.rows for d in parts]), concat([*(d.errors for d in parts), *inputs]))

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """The state of a checkpoint, or Bootstrap of what it reads at frontier - 1. What a late group was doing begins anew."""
        content = {}
        for relation, node in zip(self.state.program.outside, self.inputs, strict=True):
            rows = node.content(frontier - 1, memo).rows
            if rows is not None:
                content[relation] = rows
        if not self._saved.resume(frontier, content):
            self.state.follow(content)
        elif self._saved.late >= 0:
            self._leave(Evaluation(self._following, self.state.anew()), self._saved.late, frontier)
        self._saved.begin()
        if not self._past.loaded:
            self._past.fill(None, frontier)
        self._past.catch_up(frontier)
        self._past.advance(frontier - 1)

    def traces(self) -> Sequence[Trace]:
        """What says how far back it can be asked, and what is saved of the state."""
        return (self._past, *self._saved.traces)

    def beside(self) -> Mapping[str, int]:
        """The state, with what is saved of it."""
        return {self._saved.account.name: self.state.nbytes}

    def release(self) -> None:
        """Let it go."""
        self._past.release()
        self._saved.release()
        self._late.remove(self)


class OtherVariableNode(Node):
    """The rows of one of a group's variables behind the first; its errors are the group's."""

    label = "recursion"
    is_kept = True
    waits_for_input = False

    def __init__(self, fingerprint: str, group: RecursiveNode, variable: int) -> None:
        super().__init__(fingerprint, group.schemas[variable], [group])
        self._group = group
        self._variable = variable

    def is_due(self, lower: int) -> bool:
        """Where the group ran: the first variable may be quiet when this one is not."""
        return bool(self._group.sent) or super().is_due(lower)

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """What left of the variable."""
        sent = self._group.sent
        return merged(sent[self._variable] if sent else QUIET, self._group.delta)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The variable, from the group's state."""
        return self._group.content_of(self._variable, as_of, memo)

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:
        """The group's."""
        return self._group.errors(as_of, memo)

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """What left of the variable at these epochs, and the group's errors."""
        own = self._group.changes_of(self._variable, lower, upper, memo)
        return Delta(own.rows, self._group.changes(lower, upper, memo).errors)


class _Past(Trace):
    """An arrangement without rows, which knows since when there are answers; and `changes`, those of each variable in the steps
    since then."""

    def __init__(self, registry: Registry, fingerprint: str, schemas: Sequence[Schema]) -> None:
        super().__init__(registry, "recursion", fingerprint, schemas[0], ())
        self.changes: list[list[Delta]] = [[] for _ in schemas]

    def advance(self, since: int) -> bool:
        """Forget what changed before: at `since` and later it is of no account."""
        self.catch_up(since + 1)
        done = super().advance(since)
        at = self.spine.since.epoch
        for variable, changes in enumerate(self.changes):
            kept = [Delta(*(None if u is None else keep(u, u.times > at) for u in delta)) for delta in changes]
            self.changes[variable] = [delta for delta in kept if delta != QUIET]
        return done


def _errors(failed: Followed, now: int) -> Updates | None:
    """Messages at an epoch."""
    if not failed.messages:
        return None
    diffs = np.array(failed.message_diffs, np.int64)
    return errors_at(pa.array(failed.messages, MESSAGE), np.full(len(diffs), now), diffs)


def _undone(updates: Updates | None, as_of: int) -> Updates | None:
    """What changed after `as_of`, taken back there."""
    later = None if updates is None else keep(updates, updates.times > as_of)
    undone = negated(later)
    return None if undone is None else undone.at(np.full(len(undone), as_of))


__all__ = ["RecursiveNode", "recursive"]
