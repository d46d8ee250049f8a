"""The nodes that keep arrangements: tables, arrangements for readers, joins and reduces.

Always: a trace holds its collection up to the end of the step before its readers run, and a restored or hydrated trace
holds exactly what the steps would have left. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.engine.arrangement import Registry
from headrace.engine.batch.batch import Batch
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates, Upserts
from headrace.engine.dataflow.input_buffer import Intake
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.operators.chunked_delta import whole
from headrace.engine.operators.delta import ERRORS, QUIET, Delta, concat
from headrace.engine.operators.filtered_trace import Index
from headrace.engine.operators.join import without_nulls
from headrace.engine.operators.keyed_intake import upsert
from headrace.engine.operators.keyless_intake import count_rows
from headrace.engine.schema import Schema


class TableNode(Node):
    """A table's intake and its own arrangement: by primary key, or by all columns where it has none."""

    is_kept = True

    def __init__(self, fingerprint: str, registry: Registry, name: str, schema: Schema) -> None:
        super().__init__(fingerprint, schema, ())
        self.name = name
        self.label = name
        self.is_keyed = self.replaces = bool(schema.key)
        self.key = schema.key if schema.key else tuple(range(len(schema.columns)))
        self.trace = Trace(registry, name, fingerprint, schema, self.key)
        self._errors = Trace(registry, f"{name}-errors", f"{fingerprint}-errors", ERRORS, ())
        self._intake = Intake(name)
        self._told: list[Updates] = []

    def push(self, upserts: Upserts, frontier: int) -> None:
        """Changes for later steps."""
        self._intake.push(upserts, frontier)

    @property
    def waits(self) -> bool:
        """Whether changes are left for later steps."""
        return self._intake.waits or bool(self._told)

    def push_errors(self, errors: Updates) -> None:
        """Changes of the table's errors, of the epochs of the next step."""
        self._told.append(errors)

    def step(self, lower: int, upper: int) -> None:
        """Turn the upserts of the step into updates, and insert those into the table's trace."""
        waiting = self._intake.take(upper)
        told, self._told = self._told, []
        if waiting is None and not told:
            self.delta = QUIET
            return
        delta = QUIET if waiting is None else self._changed(waiting, lower)
        if told:
            delta = Delta(delta.rows, concat([delta.errors, *told]))
        if delta.rows is not None:
            self.trace.insert(delta.rows, upper)
        if delta.errors is not None:
            self._errors.insert(delta.errors, upper)
        self.delta = merged(delta)

    def look_up(self, keys: pa.RecordBatch, as_of: int) -> Updates | None:
        """The rows under these keys at the last complete epoch `as_of`; one asked for twice comes twice."""
        found = self.trace.spine.gather(self.trace.layout.keys(keys), as_of)
        return found.updates() if len(found) else None

    def _changed(self, waiting: Upserts, lower: int) -> Delta:
        make = upsert if self.is_keyed else count_rows
        errors = self._errors.snapshot(lower - 1) if len(self._errors.spine) else None
        live = errors if errors is not None and len(errors) else None
        return make(self.name, self.schema, self.trace.spine, waiting, lower - 1, live)

    def compute(self, as_of: int, memo: Memo) -> Delta:  # noqa: ARG002
        """The table at `as_of`, from its trace."""
        return Delta(self.trace.snapshot(as_of), self._errors.snapshot(as_of))

    def compute_in_pieces(self, as_of: int, memo: Memo) -> Delta:  # noqa: ARG002
        """As `compute`."""
        return merged(self.trace.in_pieces(as_of), Delta(None, self._errors.snapshot(as_of)))

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:  # noqa: ARG002
        """The table's errors, from their trace."""
        return self._errors.snapshot(as_of)

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:  # noqa: ARG002
        """What happened to the table, from its trace."""
        return Delta(self.trace.window(lower, upper), self._errors.window(lower, upper))

    def hydrate(self, frontier: int, memo: Memo) -> None:  # noqa: ARG002
        """A table that no checkpoint knows begins empty."""
        for trace in self.traces():
            if not trace.loaded:
                trace.fill(None, frontier)

    def traces(self) -> Sequence[Trace]:
        """Rows and errors."""
        return (self.trace, self._errors)

    def release(self) -> None:
        """Drop both arrangements."""
        for trace in self.traces():
            trace.release()


class ArrangeNode(Node):
    """A collection indexed by a key for its readers; a table's own arrangement is taken as it is.

    `index`: where keys are looked up; `layout`: of its rows; `sealed`: in a loop, the last updates of its own trace.
    `_clean`: an epoch from which on it is known to be without errors; `_stained`: one after which no error came or went.
    """

    label = "arrange"

    def __init__(
        self, fingerprint: str, registry: Registry, source: Node, key: tuple[int, ...], order: tuple[int, ...] = ()
    ) -> None:
        super().__init__(fingerprint, source.schema, [source])
        self.source = source
        self.key = key
        self._clean: int | None = None
        self._stained = 0
        self.sealed: Batch | None = None
        self._own = not (isinstance(source, TableNode) and source.key == key and not order)
        if isinstance(source, TableNode) and not self._own:
            self.trace = source.trace
        else:
            self.trace = Trace(registry, source.label, source.fingerprint, source.schema, key, order)
        self.index: Index = self.trace.spine
        self.layout = self.trace.layout

    def index_over(self, trace: Trace) -> Index:
        """Where keys are looked up, over a trace of the same content as its own."""
        return trace.spine

    def _wrap(self, source: Node, whole: ArrangeNode) -> None:
        """Stand for `source` before the trace of `whole`, which is of the same rows or more."""
        self.index = whole.index
        self._stand(source, whole.key, whole.trace, whole.layout)

    def _stand(self, source: Node, key: tuple[int, ...], trace: Trace, layout: Layout) -> None:
        """Stand for `source`, whose rows have that `layout`, before a trace that another node writes."""
        self.source, self.key, self.trace, self.layout = source, key, trace, layout
        self._own, self._clean, self._stained, self.sealed = False, None, 0, None

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """Insert the step's updates; they pass on as they are."""
        delta = self.source.delta
        if self._own and delta.rows is not None:
            sealed = self.trace.insert(delta.rows, upper, self.scope.now if self.scope else 0)
            self.sealed = sealed if self.scope is not None else None
        if delta.errors is not None:
            self._clean, self._stained = None, upper - 1
        return delta

    def changed(self) -> Keys:
        """The keys of the step's (or round's) updates, of which there are some; those of its own trace in its order."""
        if self.sealed is not None:
            return self.sealed.keys
        assert self.delta.rows is not None
        return self.layout.keys_of(self.delta.rows)

    def keys(self, rows: Updates) -> tuple[Keys, Int64s | None]:
        """The key identities of `rows`, and the positions of those without NULL (None: all)."""
        return self.layout.keys_of(rows), without_nulls(rows.struct, self.key)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The source's content, its rows from the trace if that goes so far back."""
        if not self._own or not self.trace.covers(as_of):
            return self.source.content(as_of, memo)
        return Delta(self.trace.snapshot(as_of), self.errors(as_of, memo))

    def compute_in_pieces(self, as_of: int, memo: Memo) -> Delta:
        """As `compute`."""
        if not self._own or not self.trace.covers(as_of):
            return self.source.content_in_pieces(as_of, memo)
        return merged(self.trace.in_pieces(as_of), Delta(None, self.errors(as_of, memo)))

    @property
    def is_kept(self) -> bool:  # type: ignore[override]
        """Its own is, and so is a table's."""
        return self._own or self.source.is_kept

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:
        """The source's errors, which are not asked for again while there are known to be none."""
        if self.shard.every(holds=self._clean is not None and as_of >= self._clean):
            return None
        errors = self.source.errors(as_of, memo)
        if errors is None and as_of >= self._stained:
            self._clean = as_of
        return errors

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The source's changes."""
        return self.source.changes(lower, upper, memo)

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """Import the source's content at frontier - 1."""
        self._stained = frontier - 1
        if self._own and not self.trace.loaded:
            asked = self.source.content if self.source.is_kept else self.source.content_in_pieces
            content = whole(asked(frontier - 1, memo))
            self.trace.fill(content.rows, frontier)
            self._clean = frontier - 1 if content.errors is None else None
            if content.errors is not None:
                memo[self.source] = content  # they will be asked for

    def traces(self) -> Sequence[Trace]:
        """The trace, unless it is the table's."""
        return (self.trace,) if self._own else ()

    def release(self) -> None:
        """Drop the arrangement, unless it is the table's."""
        if self._own:
            self.trace.release()
