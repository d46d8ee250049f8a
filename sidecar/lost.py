"""Columns that a table's records no longer have as they are declared: which views stand still for them, and which go on.

Always: a column is lost from the first record on that lacks it; the views that name it stand still at their last good
state, marked with that record's place, and no other view does. What is lost is kept in checkpoints until the table is
read anew. One `Lost` a source, owned by its intake; the runtime asks it at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from connectors.changes import LostColumn, TableChanges
from engine.errors import HeadraceError
from engine.schema import Schema

PAUSE, FAIL, EVOLVE = "pause", "fail", "evolve"

Column = tuple[str, str]
"""A table's name and a column's."""


class SchemaChanged(HeadraceError):
    """A table's records are no longer as they are declared, and the policy says that this stops all."""

    code = "continuity"


@dataclass
class Lost:
    """`policies`: table → what is to be done, `pause` unless said otherwise. `columns`: those lost, each by the first
    record that lacked it; where one that is gone may be NULL, by the first that has it in another type, if any has.
    """

    source: str
    policies: Mapping[str, str] = field(default_factory=dict)
    columns: dict[Column, LostColumn] = field(default_factory=dict)

    def met(self, lost: LostColumn) -> None:
        """A record lacks a column. Raises SchemaChanged where the policy says so."""
        if self.policies.get(lost.table, PAUSE) == FAIL:
            raise self._error(lost, "change the views and the declaration, or set schema_changes to pause or evolve")
        first = self.columns.setdefault((lost.table, lost.column), lost)
        if self._evolves(first) and not lost.gone:
            first = replace(lost, lsn=first.lsn)  # it was let go as NULL; this one stops the views that name it
        self.columns[lost.table, lost.column] = replace(first, lsn=max(first.lsn, lost.lsn))

    def pauses(self) -> Mapping[Column, str]:
        """The columns for which views stand still, each with the error that they show."""
        return {c: str(self._error(lost)) for c, lost in self.columns.items() if not self._evolves(lost)}

    def _evolves(self, lost: LostColumn) -> bool:
        return lost.gone and self.policies.get(lost.table, PAUSE) == EVOLVE

    def _error(self, lost: LostColumn, hint: str = "") -> SchemaChanged:
        ways = "change the views that name it, or mend it and run `headrace resync`"
        if lost.gone:
            ways = (
                "change the views that name it, declare the table anew, or set schema_changes: evolve (it is NULL then)"
            )
        return SchemaChanged(
            lost.reason, source=self.source, table=lost.table, column=lost.column, topic=lost.topic,
            partition=lost.partition, offset=lost.offset, hint=hint or ways,
        )  # fmt: skip

    def found(self, table: str, lsn: int) -> None:
        """A table was read anew as of `lsn`, all of its columns with it; not what a later record lacks."""
        self.columns = {c: lost for c, lost in self.columns.items() if c[0] != table or lost.lsn > lsn}

    def lacking(self, table: str) -> int:
        """The LSN of the last record of a table that lacks a column, -1 for none."""
        return max((lost.lsn for (name, _), lost in self.columns.items() if name == table), default=-1)

    def json(self) -> Sequence[Mapping[str, Any]]:
        """As a manifest keeps it."""
        return [asdict(lost) for lost in self.columns.values()]

    def restore(self, body: Iterable[Mapping[str, Any]], tables: Mapping[str, Schema]) -> None:
        """Of a manifest. Columns that are declared no more are forgotten. Raises TypeError."""
        for one in body:
            lost = LostColumn(**one)
            if lost.table in tables and lost.column in tables[lost.table].names:
                self.columns.setdefault((lost.table, lost.column), lost)


def unlike(changes: TableChanges, schema: Schema) -> list[LostColumn]:
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
            found.append(LostColumn(changes.table, column.name, *place, reason, hint, now is None, lsn))
    return found


def without(rows: pa.RecordBatch, schema: Schema, columns: Iterable[str]) -> pa.RecordBatch:
    """Rows whose `columns` are NULL, in the types that `schema` has; each keeps its position, and none is added."""
    for name in columns:
        at = rows.schema.get_field_index(name)
        if at >= 0:
            kind = schema.arrow.field(name).type
            rows = rows.set_column(at, pa.field(name, kind), pa.nulls(rows.num_rows, kind))
    return rows
