"""Schema drift: columns that a table's records no longer have as declared, and the views that are suspended for it.

Invariant: a column counts as missing from the first record without it. The views that name it are suspended at their last
good state, marked with that record's place; no other view is. Checkpoints keep the missing columns until the table is read
anew. The source's intake owns it; the runtime asks it at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import MissingColumn, TableChanges, Undecodable
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema

PAUSE, FAIL, EVOLVE = "pause", "fail", "evolve"

_NOT_READ, _READ_IT = (
    "the column is declared anew, and its values are being read from the source",
    "wait for its resync",
)

Column = tuple[str, str]
"""A table's name and a column's."""


class SchemaChanged(HeadraceError):
    """The records of a table are not as declared any more, and the policy `fail` ends the run for it."""

    code = "continuity"


@dataclass
class SchemaDrift:
    """`policies`: table → what is to be done, `pause` unless said otherwise. `columns`: those lost, each by the first
    record that lacked it; where one that is gone may be NULL, by the first that has it in another type, if any has.
    `anew`: the command by which a table is read anew.
    """

    source: str
    policies: Mapping[str, str] = field(default_factory=dict)
    columns: dict[Column, MissingColumn] = field(default_factory=dict)
    anew: str = "headrace resync"

    def met(self, lost: MissingColumn) -> None:
        """A record lacks a column. Raises SchemaChanged where the policy says so."""
        if self.policies.get(lost.table, PAUSE) == FAIL:
            raise self._error(lost, "change the views and the declaration, or set schema_changes to pause or evolve")
        first = self.columns.setdefault((lost.table, lost.column), lost)
        if self._evolves(first) and not lost.gone:
            first = replace(lost, lsn=first.lsn)  # it was let go as NULL; this one stops the views that name it
        self.columns[lost.table, lost.column] = replace(first, lsn=max(first.lsn, lost.lsn))

    def pauses(self) -> Mapping[Column, str]:
        """The columns for which views are suspended, each with the error that they show."""
        return {c: str(self._error(lost)) for c, lost in self.columns.items() if not self._evolves(lost)}

    def _evolves(self, lost: MissingColumn) -> bool:
        return lost.gone and self.policies.get(lost.table, PAUSE) == EVOLVE

    def _error(self, lost: MissingColumn, hint: str = "") -> SchemaChanged:
        ways = f"change the views that name it, or mend it and run `{self.anew}`" if lost.topic else lost.hint
        if lost.gone:
            ways = (
                "change the views that name it, declare the table anew, or set schema_changes: evolve (it is NULL then)"
            )
        place = {"topic": lost.topic, "partition": lost.partition, "offset": lost.offset} if lost.topic else {}
        return SchemaChanged(
            lost.reason, source=self.source, table=lost.table, column=lost.column, **place, hint=hint or ways
        )

    def found(self, table: str, lsn: int) -> None:
        """A table was read anew as of `lsn`, all of its columns with it; not what a later record lacks."""
        self.columns = {c: lost for c, lost in self.columns.items() if c[0] != table or lost.lsn > lsn}

    def redeclared(self, table: str, schema: Schema, added: Iterable[str], lsn: int) -> None:
        """A table is declared otherwise: what is lost stays so, under the names of now, until the table is read anew; so are the
        values of `added` columns up to `lsn`."""
        now = {c.renamed_from: c.name for c in schema.columns if c.renamed_from is not None} | {
            n: n for n in schema.names
        }
        found: dict[Column, MissingColumn] = {}
        for (name, column), lost in self.columns.items():
            if name != table:
                found[name, column] = lost
            elif column in now:
                found[name, now[column]] = replace(lost, column=now[column])
        for column in added:
            found[table, column] = MissingColumn(table, column, "", -1, -1, _NOT_READ, _READ_IT, gone=False, lsn=lsn)
        self.columns = found

    def lacking(self, table: str) -> int:
        """The LSN of the last record of a table that lacks a column, -1 for none."""
        return max((lost.lsn for (name, _), lost in self.columns.items() if name == table), default=-1)

    def json(self) -> Sequence[Mapping[str, Any]]:
        """As a manifest keeps it."""
        return [asdict(lost) for lost in self.columns.values()]

    def restore(self, body: Iterable[Mapping[str, Any]], tables: Mapping[str, Schema]) -> None:
        """Of a manifest. Columns that are declared no more are forgotten. Raises TypeError."""
        for one in body:
            lost = MissingColumn(**one)
            if lost.table in tables and lost.column in tables[lost.table].names:
                self.columns.setdefault((lost.table, lost.column), lost)


def unlike(changes: TableChanges, schema: Schema) -> list[MissingColumn]:
    """The columns of a table that rows, whose columns were learnt from the messages, do not have as `schema` has them."""
    found = []
    for column in schema.columns:
        at = changes.rows.schema.get_field_index(column.name)
        now = None if at < 0 else changes.rows.schema.field(at).type
        if now != column.type.arrow:
            reason = "is gone: the message has no such field" if now is None else f"is no {column.type} any more"
            place = (changes.topic, changes.partition, int(changes.offsets[0]))
            reason, hint = f"column {column.name} {reason}", "declare the table as it is now"
            lsn = int(changes.lsns.max())
            found.append(MissingColumn(changes.table, column.name, *place, reason, hint, now is None, lsn))
    return found


def fitted(changes: TableChanges, schema: Schema) -> tuple[TableChanges, Sequence[MissingColumn], Undecodable | None]:
    """A run of a table without what no longer fits it: the columns that are lost, or, where its key is, no row, and the record
    that says so."""
    if changes.rows.schema.equals(schema.arrow):
        return changes, (), None
    unfit = unlike(changes, schema)
    key = {schema.names[k] for k in schema.key or range(len(schema.names))}
    broken = next((lost for lost in unfit if lost.column in key), None)
    if broken is not None:
        bad = Undecodable(changes.table, changes.topic, changes.partition, broken.offset, broken.reason, broken.hint)
        return changes.take(np.empty(0, np.int64)), (), bad
    return replace(changes, rows=without(changes.rows, schema, [c.column for c in unfit])), unfit, None


def without(rows: pa.RecordBatch, schema: Schema, columns: Iterable[str]) -> pa.RecordBatch:
    """Rows whose `columns` are NULL, in the types that `schema` has; each keeps its position, and none is added."""
    for name in columns:
        at = rows.schema.get_field_index(name)
        if at >= 0:
            kind = schema.arrow.field(name).type
            rows = rows.set_column(at, pa.field(name, kind), pa.nulls(rows.num_rows, kind))
    return rows
