"""The nodes without state: their deltas are functions of their inputs' deltas, and their content that of their content.

Always: what they send is linear in what they take, so that they work on pieces. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.engine.batch.consolidation import without_pairs
from headrace.engine.batch.keys import image_plan
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.operators.chunked_delta import Pieced, pieces_of
from headrace.engine.operators.conditions import wanted
from headrace.engine.operators.delta import QUIET, Delta, concat, negated, take
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.operators.key_violations import repeated_keys
from headrace.engine.operators.linear import choice_of, choose, filter_rows, project
from headrace.engine.operators.row_programs import condition, keep_few, project_few, projection
from headrace.engine.schema import Schema


class StatelessNode(Node):
    """A node whose content is its delta function applied to its inputs' content."""

    takes_pieces = True

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The function of the inputs' deltas."""
        return self._of_all([node.delta for node in self.inputs])

    def _of_all(self, deltas: Sequence[Delta]) -> Delta:
        if any(isinstance(delta, Pieced) for delta in deltas):
            return Pieced(self._of_pieces(deltas))
        return self.of(deltas)

    def _of_pieces(self, deltas: Sequence[Delta]) -> Iterator[Delta]:
        """The function of each piece alone: it is linear."""
        quiet = [QUIET] * len(deltas)
        for k, delta in enumerate(deltas):
            for piece in pieces_of(delta):
                yield self.of([*quiet[:k], piece, *quiet[k + 1 :]])

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The function of the inputs' content."""
        return self._of_all([node.content_in_pieces(as_of, memo) for node in self.inputs])

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The function of the inputs' changes."""
        return self.of([node.changes(lower, upper, memo) for node in self.inputs])

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The delta that these deltas make; linear."""
        raise NotImplementedError


class ProjectNode(StatelessNode):
    """Each row replaced by expressions over it. A change of a table's columns that none of them reads is none."""

    label = "project"

    def __init__(self, fingerprint: str, source: Node, exprs: Sequence[Expr], schema: Schema) -> None:
        super().__init__(fingerprint, schema, [source])
        self.exprs = tuple(exprs)
        self._arrow: pa.Schema = schema.arrow
        self._choice = choice_of(self.exprs, self._arrow)
        self.replaces = source.replaces
        chosen = None if self._choice is None else set(self._choice.columns.tolist())
        may_cancel = source.replaces and (chosen is None or len(chosen) < len(source.schema.columns))
        self._image = image_plan(self._arrow) if may_cancel else None
        self._program = projection(source.schema.arrow.types, self.exprs, self._arrow)

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The projected rows, and errors of rows that fail."""
        rows = deltas[0].rows
        if rows is None:
            return merged(QUIET, deltas[0])
        few = project_few(rows, self._program, paired=self._image is not None)
        if few is not None:
            return merged(few, deltas[0])
        made = choose(rows, self._choice) or project(rows, self.exprs, self._arrow)
        return merged(self._without_pairs(made), deltas[0])

    def _without_pairs(self, made: Delta) -> Delta:
        if self._image is None or made.rows is None:
            return made
        left = without_pairs(made.rows, self._image)
        return made if left is None else Delta(take(made.rows, left) if len(left) else None, made.errors)


class FilterNode(StatelessNode):
    """The rows for which a predicate is TRUE."""

    label = "filter"

    def __init__(self, fingerprint: str, source: Node, predicate: Expr) -> None:
        super().__init__(fingerprint, source.schema, [source])
        self.predicate = predicate
        self.wanted = wanted(predicate)
        self.replaces = source.replaces
        self._program = condition(source.schema.arrow, predicate)

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The rows kept, and errors of rows that fail."""
        rows = deltas[0].rows
        if rows is None:
            return merged(QUIET, deltas[0])
        return merged(keep_few(rows, self._program) or filter_rows(rows, self.predicate), deltas[0])


class ConcatNode(StatelessNode):
    """All rows of several collections of the same lanes."""

    label = "concat"

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """One delta after the other."""
        return merged(Delta(concat([d.rows for d in deltas]), None), *deltas)


class NegateNode(StatelessNode):
    """The collection with every multiplicity's sign changed; its errors stay errors."""

    label = "negate"

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The rows negated."""
        return merged(Delta(negated(deltas[0].rows), None), deltas[0])


class KeyCheckNode(StatelessNode):
    """A collection in error for each key with more than one live row. Inputs: it, and its rows counted by key."""

    label = "check_key"

    def __init__(self, fingerprint: str, source: Node, counts: Node, view: str, names: Sequence[str]) -> None:
        super().__init__(fingerprint, source.schema, [source, counts])
        self._view = view
        self._names = tuple(names)

    def of(self, deltas: Sequence[Delta]) -> Delta:
        """The rows as they are, and an error for each count above one."""
        rows, counts = deltas
        return merged(Delta(rows.rows, self._repeated(counts.rows)), Delta(None, rows.errors))

    def _repeated(self, counts: Updates | None) -> Updates | None:
        return None if counts is None else repeated_keys(counts, self._view, self._names)
