"""The plan of a table: what must be taken out of a row image, in which order, and how each column is decoded.

A plan is made once for a table and a shape of its messages and then used for every run. Declared columns win and are
checked against the message's schema; without a declaration the columns are the message's own, and those that cannot be
decoded exactly are left out, each with its reason. Pure; called by the envelope decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import pyarrow as pa

from headrace.connectors.formats.column_decoders import Decoder, decoder
from headrace.connectors.formats.encodings import Form, Wire, declared_precision, from_connect, from_declared
from headrace.connectors.formats.schema_cache import Shape
from headrace.connectors.formats.table_specs import CannotDecode, Encodings, TableSpec
from headrace.connectors.formats.toast_placeholders import unsent_values
from headrace.engine.schema import Column, Kind, Schema

Images = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Plan:
    """How rows of one table are decoded. One decoder and one tuple of placeholders a column, by position.

    learnt: the schema is the message's own; provisional: too little of it is known to tell anyone (a truncate alone).
    refusal: why no row of the table can be decoded, or None. lost: columns that are not decoded, and NULL, each with why.
    renamed: columns that these messages have under an older name, each with that.
    """

    table: str
    schema: Schema
    decoders: tuple[Decoder, ...]
    unsent: tuple[tuple[Any, ...], ...]
    absent_is_null: frozenset[str] = frozenset()
    learnt: bool = False
    refusal: CannotDecode | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    provisional: bool = False
    lost: Mapping[str, CannotDecode] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def may_lose(self, column: str | None) -> bool:
        """Whether rows are what they are without a column: not one of the key, nor any where the whole row is the key."""
        return not self.learnt and self.key is not None and column in self.schema.names and column not in self.key

    def without(self, column: str, why: CannotDecode) -> Plan:
        """The plan by which a column is not decoded."""
        at = self.schema.position(column)
        null = Decoder(self.schema.columns[at].type.arrow, lambda values: [None] * len(values))
        decoders = (*self.decoders[:at], null, *self.decoders[at + 1 :])
        unsent: tuple[tuple[Any, ...], ...] = (*self.unsent[:at], (), *self.unsent[at + 1 :])
        absent, lost = self.absent_is_null | {column}, {**self.lost, column: why}
        return replace(self, decoders=decoders, unsent=unsent, absent_is_null=absent, lost=lost)

    def earlier(self, column: str) -> Plan | None:
        """The plan for messages that have a column under its older name; None where it has none, or that is this one."""
        if column in self.renamed or column not in self.schema.names:
            return None
        before = self.schema.columns[self.schema.position(column)].renamed_from
        return None if before is None else replace(self, renamed={**self.renamed, column: before})

    @cached_property
    def sent(self) -> tuple[str, ...]:
        """The columns' names in these messages, by position."""
        return tuple(self.renamed.get(name, name) for name in self.schema.names)

    @cached_property
    def toastable(self) -> tuple[tuple[int, tuple[Any, ...]], ...]:
        """(position, placeholders) of the columns that may come unsent."""
        return tuple((at, values) for at, values in enumerate(self.unsent) if values)

    @cached_property
    def struct(self) -> pa.DataType:
        """The rows' lanes as one struct."""
        return pa.struct(list(self.schema.arrow))

    @cached_property
    def _image(self) -> Callable[[Any], tuple[Any, ...]]:
        return itemgetter(*self.sent)

    @property
    def key(self) -> tuple[str, ...] | None:
        """The names of the key columns, or None for a multiset."""
        return None if self.schema.key is None else tuple(self.schema.names[i] for i in self.schema.key)

    def columns(self, images: Images) -> list[Sequence[Any]]:
        """The values of each column over row images. Raises CannotDecode where a declared column is not there."""
        names = self.schema.names
        try:
            if len(names) > 1:
                return list(zip(*tuple(map(self._image, images)), strict=True))  # a tuple first: see `build`
            return [[image[name] for image in images] for name in self.sent]
        except KeyError:
            return [self._column(name, images) for name in names]

    def _column(self, name: str, images: Images) -> Sequence[Any]:
        sent = self.renamed.get(name, name)
        if name not in self.absent_is_null:
            for image in images:
                if sent not in image:
                    raise CannotDecode(
                        f"column {name} is gone: the message has no such field",
                        "declare the table as it is now; where the column is newer than the message, say that its "
                        "absence means NULL",
                        column=name, gone=True,
                    )  # fmt: skip
        return [image.get(sent) for image in images]


def declared_plan(spec: TableSpec, encodings: Encodings, shape: Shape | None, *, loses: bool = False) -> Plan:
    """The plan of a declared table, for messages of `shape` (None: without schema). `loses`: it may do without columns."""
    fields = None if shape is None else shape.row_fields()
    decoders: list[Decoder] = []
    refusal = None
    lost: dict[str, CannotDecode] = {}
    for column in spec.schema.columns:
        try:
            wire = _declared_wire(column, spec, encodings, fields)
            decoders.append(decoder(column.type, wire))
        except CannotDecode as error:
            why = CannotDecode(f"column {column.name}: {error.reason}", error.hint, column=column.name, gone=error.gone)
            decoders.append(Decoder(column.type.arrow, lambda values: [None] * len(values)))
            lost[column.name] = why
            refusal = refusal or why
    if shape is not None and fields is None:
        refusal = not_an_envelope()
    unsent = tuple(unsent_values(c.type, encodings.unavailable_value) for c in spec.schema.columns)
    renamed = {} if fields is None else {
        c.name: c.renamed_from for c in spec.schema.columns
        if c.name not in fields and c.renamed_from is not None and c.renamed_from in fields
    }  # fmt: skip
    absent = spec.absent_is_null
    plan = Plan(spec.name, spec.schema, tuple(decoders), unsent, absent, refusal=refusal, renamed=renamed)
    if refusal is not None and loses and fields is not None and all(map(plan.may_lose, lost)):
        plan = replace(plan, refusal=None)
        for name, why in lost.items():
            plan = plan.without(name, why)
    return plan


def _declared_wire(
    column: Column, spec: TableSpec, encodings: Encodings, fields: Mapping[str, Mapping[str, Any]] | None
) -> Wire:
    own = from_declared_safely(column, spec, encodings)
    if fields is None:
        return own if isinstance(own, Wire) else _raise(own)
    name = column.name if column.name in fields or column.renamed_from is None else column.renamed_from
    if name not in fields:
        if column.name in spec.absent_is_null:
            return own if isinstance(own, Wire) else _raise(own)
        raise CannotDecode(
            "is gone: the message's schema has no such field", "declare the table as it is now", gone=True
        )
    wire, _ = from_connect(fields[name])
    if wire.form is Form.TEXT and column.type.kind is Kind.BYTEA and isinstance(own, Wire):
        return own
    return wire


def from_declared_safely(column: Column, spec: TableSpec, encodings: Encodings) -> Wire | CannotDecode:
    """The encoding that the connector's settings give a column, or why it cannot be decoded."""
    precision = spec.precisions.get(column.name, declared_precision(column.type.name or ""))
    try:
        return from_declared(column.type, encodings, precision)
    except CannotDecode as error:
        return error


def _raise(error: CannotDecode) -> Wire:
    raise error


def not_an_envelope() -> CannotDecode:
    """The refusal of messages that some transform has changed."""
    return CannotDecode("not a Debezium envelope", "remove transforms such as ExtractNewRecordState from the connector")


def learnt_plan(table: str, encodings: Encodings, shape: Shape, key: Sequence[str] | None) -> Plan:
    """The plan that a message's own schema gives; `key`: the fields of its key, None where it has none."""
    fields = shape.row_fields()
    if fields is None:
        return Plan(table, Schema(()), (), (), learnt=True, refusal=not_an_envelope())
    columns: list[Column] = []
    decoders: list[Decoder] = []
    left_out: dict[str, str] = {}
    refusal = None
    for name, described in fields.items():
        try:
            wire, kind = from_connect(described)
            if kind is None:
                raise CannotDecode("the message does not tell bit from bit varying: declare the column")
            decoders.append(decoder(kind, wire))
            columns.append(Column(name, kind, bool(described.get("optional", True))))
        except CannotDecode as error:
            left_out[name] = error.reason
    missing = [k for k in key or () if k not in {c.name for c in columns}]
    if missing:
        refusal = CannotDecode(f"key column {missing[0]}: {left_out.get(missing[0], 'is not among the columns')}")
    schema = Schema.of(columns, None if key is None or missing else key)
    unsent = tuple(unsent_values(c.type, encodings.unavailable_value) for c in columns)
    return Plan(table, schema, tuple(decoders), unsent, learnt=True, refusal=refusal, left_out=left_out)
