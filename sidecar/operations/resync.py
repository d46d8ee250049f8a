"""`headrace resync`: compares a table's arrangement with the source as it is now, and makes the difference one epoch.

Always: the table is read at an exact LSN (an exported snapshot); it is compared once every transaction up to that LSN is in,
and rows that later transactions of the stream have set are left as they set them. What differs is kept on disk before its
epoch is bound. Asked for through the host; the runtime attends to it between two steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import asdict, dataclass, field

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from headrace.connectors.commit_place import CommitPlace, Lsn
from headrace.connectors.copy_text import copy_fields, lines, text_columns
from headrace.connectors.postgres.connection import Address
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT, Updates, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.schema import Schema
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.execution.live_errors import add_errors
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.intake.table_upserts import rows_here
from headrace.sidecar.operations import postgres_at_lsn
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.state.synthetic_transactions import injected
from headrace.sidecar.transactions.model import Resync as ResyncTransaction
from headrace.sidecar.transactions.model import Transaction

ATTEMPTS = 5
_STRING = pa.large_string()
_SESSION = {
    "datestyle": "ISO", "timezone": "UTC", "intervalstyle": "postgres", "bytea_output": "hex", "extra_float_digits": "1",
    "search_path": "",
}  # fmt: skip
"""How the lanes' own text images are spelled."""
_UNSEEN = (("\b", "\\b"), ("\f", "\\f"), ("\v", "\\v"))
"""What COPY escapes beyond what must be."""


class ResyncError(HeadraceError):
    """A table cannot be compared with its source."""

    code = "resync"


@dataclass(frozen=True)
class TableRead:
    """A table's rows as of `lsn`, each as a line of COPY's text format."""

    lsn: int
    rows: pa.LargeStringArray


Read = Callable[[], TableRead]

_ADDRESS = "correct `database:` of the source in headrace.yaml, or --from: host, user, password"


def read_table(url: str, table: str, schema: Schema) -> TableRead:
    """A table of the source's database, with an exact LSN. Raises ResyncError."""
    try:
        address = Address(url)
    except ValueError as error:
        raise ResyncError(f"the source's address is {error}", table=table, hint=_ADDRESS) from None
    columns = sql.SQL(", ").join(map(sql.Identifier, schema.names))
    query = sql.SQL("copy (select {} from {}) to stdout").format(columns, sql.Identifier(*table.split(".", 1)))
    try:
        with postgres_at_lsn.snapshot(url, f"headrace_resync_{random.randrange(10**9)}") as (lsn, db):  # noqa: S311
            for name, value in _SESSION.items():
                db.execute("select set_config(%s, %s, true)", (name, value))
            with db.cursor() as cursor, cursor.copy(query) as copy:
                return TableRead(lsn, _split(b"".join(bytes(block) for block in copy)))
    except psycopg.Error as error:
        reason = error.diag.message_primary or address.clean(error)
        asked = error.sqlstate is not None
        hint = "its role needs REPLICATION and SELECT, and the table must have the columns that are declared"
        raise ResyncError(
            f"the source cannot be read: {reason}",
            table=table,
            database=address.place,
            hint=hint if asked else _ADDRESS,
        ) from error


def _split(data: bytes) -> pa.LargeStringArray:
    """The lines of `data`, each ended by a newline."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    starts = np.append(0, ends).astype(np.int64)
    whole = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(starts), pa.py_buffer(data))
    return pc.utf8_slice_codeunits(whole, 0, -1)


def text_lines(schema: Schema, rows: pa.RecordBatch) -> pa.LargeStringArray:
    """Rows as COPY writes them."""
    found = lines(copy_fields(schema, text_columns(schema, rows)), rows.num_rows)
    for raw, escaped in _UNSEEN:
        found = pc.replace_substring(found, raw, escaped)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def parse(schema: Schema, rows: Sequence[str]) -> pa.RecordBatch:
    """Lines of COPY's text format as rows of a table. Raises ResyncError for a value that does not fit its column's type."""
    return parse_bytes(schema, "".join(f"{line}\n" for line in rows).encode())


def parse_bytes(schema: Schema, data: bytes) -> pa.RecordBatch:
    """As `parse`, of the lines as COPY sends them, each with its newline. Raises ArrowInvalid for what is no UTF-8."""
    fields, width = _fields(data), len(schema.columns)
    columns = []
    for at, column in enumerate(schema.columns):
        found = from_text(fields.take(pa.array(np.arange(at, len(fields), width))), column.type)
        if found.errors is not None:
            reason = next(text for text in found.errors.to_pylist() if text is not None)
            raise ResyncError(f"a value of the source does not fit: {reason.partition(':')[0]}", column=column.name,
                              data_type=column.type.sql(), hint="declare the column as it is in the source")  # fmt: skip
        columns.append(found.values)
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _fields(data: bytes) -> pa.LargeStringArray:
    """The values of whole lines, row by row. A tab or a newline within a value is escaped, so that each one ends a field."""
    raw = np.frombuffer(data, np.uint8)
    breaks = (raw == ord("\t")) | (raw == ord("\n"))
    ends = np.flatnonzero(breaks)
    offsets = np.append(0, ends - np.arange(len(ends))).astype(np.int64)
    fields = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(raw[~breaks]))
    fields.validate(full=True)
    if b"\\" not in data:
        return fields
    fields = pc.if_else(pc.equal(fields, "\\N"), pa.scalar(None, _STRING), fields)
    escaped = pc.fill_null(pc.match_substring(fields, "\\"), False)
    values = [_unescaped(text) for text in fields.filter(escaped).to_pylist()]
    return pc.replace_with_mask(fields, escaped, pa.array(values, _STRING)) if values else fields


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}


def _unescaped(text: str) -> str:
    parts = text.split("\\\\")
    return "\\".join(
        "".join(_ESCAPES[p[0]] + p[1:] if i else p for i, p in enumerate(part.split("\\"))) for part in parts
    )


@dataclass(frozen=True)
class Difference:
    """What a table needs to be as the source has it: `rows` in order, `kinds` one each, and how many of which."""

    rows: pa.RecordBatch
    kinds: np.ndarray
    added: int
    changed: int
    removed: int


def difference(schema: Schema, ours: pa.LargeStringArray, times: np.ndarray, read: TableRead, later: Upserts | None
               ) -> Difference | None:  # fmt: skip
    """`ours`, each row `times`, against what was read; `later`: what came after it, which stands.

    None where that cannot be told apart: the table was truncated later, or a later change did not bring all of its row.
    """
    if later is not None and ((later.kinds == TRUNCATE).any() or any(m.any() for m in later.unchanged.values())):
        return None
    texts, counts = [ours, read.rows], [times, np.full(len(read.rows), -1, np.int64)]
    if schema.key is None and later is not None:
        texts.append(text_lines(schema, later.rows))
        counts.append(np.where(later.kinds == INSERT, -1, 1))
    table = pa.table({"line": pa.chunked_array(texts), "n": np.concatenate(counts)})
    summed = table.group_by("line").aggregate([("n", "sum")])
    wrong = summed.filter(pc.not_equal(summed["n_sum"], 0)).sort_by("line")
    found = list(zip(wrong["line"].to_pylist(), wrong["n_sum"].to_pylist(), strict=True))
    if schema.key is None:
        return _of_multiset(schema, found)
    return _of_keyed(
        schema, found, set() if later is None else _keys(schema, text_lines(schema, later.rows).to_pylist())
    )


def _of_multiset(schema: Schema, found: Sequence[tuple[str, int]]) -> Difference:
    texts = [line for line, n in found for _ in range(abs(n))]
    kinds = np.array([RETRACT if n > 0 else INSERT for _, n in found for _ in range(abs(n))], np.uint8)
    added = int((kinds == INSERT).sum())
    return Difference(parse(schema, texts), kinds, added, 0, len(kinds) - added)


def _of_keyed(schema: Schema, found: Sequence[tuple[str, int]], stand: set[tuple[str, ...]]) -> Difference:
    theirs = {_key(schema, line): line for line, n in found if n < 0}
    mine = {_key(schema, line): line for line, n in found if n > 0}
    theirs = {k: line for k, line in theirs.items() if k not in stand}
    mine = {k: line for k, line in mine.items() if k not in stand}
    gone = [line for k, line in mine.items() if k not in theirs]
    kinds = np.array([DELETE] * len(gone) + [UPSERT] * len(theirs), np.uint8)
    changed = len(theirs.keys() & mine.keys())
    return Difference(parse(schema, [*gone, *theirs.values()]), kinds, len(theirs) - changed, changed, len(gone))


def _key(schema: Schema, line: str) -> tuple[str, ...]:
    fields = line.split("\t")
    return tuple(fields[k] for k in schema.key or ())


def _keys(schema: Schema, texts: Iterable[str]) -> set[tuple[str, ...]]:
    return {_key(schema, line) for line in texts}


def _taken_back(errors: Updates) -> dict[str, int]:
    live: dict[str, int] = {}
    add_errors(live, errors)
    return {text: -times for text, times in live.items()}


@dataclass(frozen=True)
class Report:
    """What a resync did. `place`: as of which the source was read; `rows`: that it has; `epoch`: that of the differences."""

    table: str
    place: CommitPlace
    rows: int
    added: int
    changed: int
    removed: int
    epoch: int

    def json(self) -> Mapping[str, object]:
        """As it is told, with the place as its source writes it."""
        return {**{k: v for k, v in asdict(self).items() if k != "place"}, **self.place.json()}


@dataclass(frozen=True)
class _OneTable:
    """Puts a table out as it is."""

    name: str
    schema: Schema

    def __call__(self, flow: Dataflow) -> Mapping[str, Collection]:
        return {self.name: flow.table(self.name, self.schema)}


@dataclass
class TableJob:
    """A background job of one table. `told` is called once with what came of it, once a sink holds that. Single writer: the
    loop."""

    table: str
    executor: Executor
    told: Callable[[Report | HeadraceError], None]

    def advance(self, runtime: Runtime) -> bool:
        """Do what can be done now, everything bound being taken in. Returns whether the job has ended."""
        try:
            return self._attend(runtime)
        except HeadraceError as error:
            self.told(error)
            return True

    def _attend(self, runtime: Runtime) -> bool:
        """As `advance`. Raises HeadraceError."""
        raise NotImplementedError


@dataclass
class Resync(TableJob):
    """A background job: one table is compared with its source."""

    intake: Intake
    schema: Schema
    read: Read
    tries: int = 0
    _reading: Future[TableRead] | None = None
    _seen: list[Transaction] = field(default_factory=list)
    _done: tuple[TableRead, Difference] | None = None
    _bound: int | None = None

    def on_bound(self, transactions: Iterable[tuple[int, Transaction]]) -> None:
        """These are in now, each at its epoch."""
        for epoch, transaction in transactions:
            whole = isinstance(transaction, ResyncTransaction) and transaction.whole and transaction.table == self.table
            if whole or any(s.changes.table == self.table for s in transaction.slices):
                self._seen.append(transaction)
            if whole and self._done is not None:
                self._bound = epoch

    def _attend(self, runtime: Runtime) -> bool:
        if self._done is not None:
            if self._bound is None or not runtime.published(self._bound):
                return False
            self.told(self._report(*self._done, self._bound))
            return True
        flow = runtime.parts.flow
        if runtime.parts.reclock.replaying is not None or runtime.hold:
            return False
        if any(stop.table == self.table for stop in self.intake.assembler.stops):
            raise ResyncError(
                "the table is suspended", table=self.table, hint="mend what `headrace status` names first"
            )
        at = runtime.sources.get(self.intake.name)
        if at is None:
            return False  # what is read before the first snapshot may be gone in it, which does not say so
        if self._reading is None:
            self._seen.clear()
            self._reading = self.executor.submit(self.read)
        if not self._reading.done() or at.place < Lsn(self._reading.result().lsn):
            return False
        read = self._reading.result()
        with closing(flow.beside()()) as beside:
            beside.build(_OneTable(self.table, self.schema), {self.table: Schema(self.schema.columns)})
            rows, errors = beside.outputs[self.table].snapshot(runtime.epoch)
        found = self._compare(flow, rows, read)
        if found is None:
            self._reading = None
            self.tries += 1
            if self.tries < ATTEMPTS:
                return False
            raise ResyncError("the table changes too fast to be compared", table=self.table, attempts=self.tries,
                              hint="try again when no column goes, and fewer TRUNCATEs or long rows are written")  # fmt: skip
        self._done = (read, found)
        now = int(runtime.parts.wall() * 1e6)
        over = _taken_back(errors) if self.schema.key is None else {}  # those of keys go with their rows
        self.intake.injected.append(injected(self.table, found.rows, found.kinds, at.place, now, over))
        return False

    def _report(self, read: TableRead, found: Difference, epoch: int) -> Report:
        return Report(self.table, Lsn(read.lsn), len(read.rows), found.added, found.changed, found.removed, epoch)

    def _compare(self, flow: Flow, rows: Updates, read: TableRead) -> Difference | None:
        if self.intake.lost.lacking(self.table) > read.lsn:
            return None  # a column was lost after the table was read
        after = [t for t in self._seen if t.place > Lsn(read.lsn)]
        later = rows_here(flow, list(enumerate(after, 1)), self.table, self.schema)
        return difference(self.schema, text_lines(self.schema, rows.rows), rows.diffs, read, later)
