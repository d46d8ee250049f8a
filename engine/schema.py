"""Typed columns and keys, and the physical lane (Arrow type) of each Postgres type.

A `DataType` is a Postgres type as users spell it; `arrow` is the lane that holds its values everywhere: at the doors, in
batches, in expressions. Two images of one value (numeric scale, minus zero) are different rows and equal keys.
Called by every package; imports nothing of ours but `errors` and `value`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from headrace.engine.errors import TypeNotSupported
from headrace.engine.value import derived, hashed_once, spelled_once


class Kind(enum.Enum):
    """The Postgres types that the engine computes with; `OTHER` is carried as its text image and only compared."""

    BOOLEAN = "boolean"
    SMALLINT = "smallint"
    INTEGER = "integer"
    BIGINT = "bigint"
    REAL = "real"
    DOUBLE = "double precision"
    NUMERIC = "numeric"
    TEXT = "text"
    VARCHAR = "character varying"
    BPCHAR = "character"
    BYTEA = "bytea"
    DATE = "date"
    TIME = "time without time zone"
    TIMESTAMP = "timestamp without time zone"
    TIMESTAMPTZ = "timestamp with time zone"
    UUID = "uuid"
    JSON = "json"
    JSONB = "jsonb"
    OTHER = "other"


_SYNONYMS: dict[str, Kind] = {
    "bool": Kind.BOOLEAN,
    "int2": Kind.SMALLINT,
    "smallserial": Kind.SMALLINT,
    "int": Kind.INTEGER,
    "int4": Kind.INTEGER,
    "serial": Kind.INTEGER,
    "int8": Kind.BIGINT,
    "bigserial": Kind.BIGINT,
    "float4": Kind.REAL,
    "float8": Kind.DOUBLE,
    "float": Kind.DOUBLE,
    "double": Kind.DOUBLE,
    "decimal": Kind.NUMERIC,
    "varchar": Kind.VARCHAR,
    "string": Kind.TEXT,
    "char": Kind.BPCHAR,
    "bpchar": Kind.BPCHAR,
    "time": Kind.TIME,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMPTZ,
    **{k.value: k for k in Kind if k is not Kind.OTHER},
}

_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.SMALLINT: pa.int16(),
    Kind.INTEGER: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.REAL: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.BYTEA: pa.large_binary(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
}

MAX_DIGITS = 38
"""The digits of a decimal128 lane; wider numerics are carried as their text image."""

_SPELLING = re.compile(
    r"^(?P<name>[^()\[\]]+)\s*(\((?P<mods>[^)]*)\))?\s*(?P<tail>[^()\[\]]*?)(?P<array>(\s*\[\d*\])*)$"
)


@spelled_once
@hashed_once
@dataclass(frozen=True)
class DataType:
    """One Postgres type.

    `precision`, `scale`: of NUMERIC. A scale without a precision is an unconstrained numeric whose display scale is
    known (the sum of a numeric(12,2)). `length`: of VARCHAR and BPCHAR, in characters. `name`: of OTHER, as Postgres
    spells it (`inet`, `mood`, `integer[]`). `labels`: of an enum (or an array of one) its values in their order; of another
    type none, where the catalogue says so, and None where nobody does.
    """

    kind: Kind
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    name: str | None = None
    labels: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, text: str) -> DataType:
        """The type that Postgres means by `text`; unknown names become OTHER. Raises TypeNotSupported for nonsense."""
        spelled = " ".join(text.strip().lower().split())
        match = _SPELLING.match(spelled)
        if not match or not spelled:
            raise TypeNotSupported("not a Postgres type", value=text, hint="write it as format_type() prints it")
        if match["array"].strip():
            element = cls.parse(spelled[: match.start("array")])
            if match["mods"] and element.kind in (Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
                # Debezium's encoding depends on the digits, which no other type keeps.
                return cls(Kind.OTHER, name=text.strip())
            return array_of(element, bare=False)
        name = f"{match['name'].strip()} {match['tail']}".strip()
        mods = [int(m) for m in match["mods"].split(",")] if match["mods"] and _all_ints(match["mods"]) else []
        kind = _SYNONYMS.get(name, Kind.OTHER)
        if kind is Kind.OTHER:
            return cls(Kind.OTHER, name=_other(name, mods) or text.strip())
        if kind is Kind.NUMERIC:
            return cls(kind, precision=mods[0], scale=mods[1] if len(mods) > 1 else 0) if mods else cls(kind)
        if kind is Kind.BPCHAR:
            return cls(kind, length=mods[0] if mods else (None if name == "bpchar" else 1))
        if kind is Kind.VARCHAR:
            return cls(kind, length=mods[0] if mods else None)
        if kind is Kind.DOUBLE and name == "float" and mods and mods[0] <= 24:
            return REAL
        return cls(kind)

    @cached_property
    def element(self) -> DataType | None:
        """The type of an array's elements; None for what is no array.

        >>> str(DataType.parse("int[]").element), DataType.parse("int").element
        ('integer', None)
        """
        if self.kind is not Kind.OTHER or not (self.name or "").endswith("[]"):
            return None
        element = DataType.parse((self.name or "")[:-2])
        return replace(element, labels=self.labels) if element.kind is Kind.OTHER else element

    @cached_property
    def bare(self) -> DataType:
        """The type without its modifiers.

        >>> str(DataType.parse("bit varying(5)").bare), str(DataType.parse("numeric(5,2)").bare)
        ('bit varying', 'numeric')
        """
        if self.kind is not Kind.OTHER:
            return DataType(self.kind)
        if self.element is not None or "(" not in (self.name or ""):
            return self
        return DataType(Kind.OTHER, name=(self.name or "").partition("(")[0].strip(), labels=self.labels)

    @cached_property
    def size(self) -> int | None:
        """The number that a type that is known by its text has in parentheses: how many bits, how many at most."""
        found = re.search(r"\((\d+)\)$", self.name or "") if self.kind is Kind.OTHER else None
        return None if found is None else int(found[1])

    @property
    def fixed_scale(self) -> bool:
        """True for a numeric held in a decimal128 lane; false for one held as text."""
        return self.scale is not None and (self.precision or 0) <= MAX_DIGITS and -1000 <= self.scale <= MAX_DIGITS

    @cached_property
    def arrow(self) -> pa.DataType:
        """The lane. NUMERIC of known scale: decimal128(38, max(scale, 0)); any other non-listed type: its text image."""
        if self.kind is Kind.NUMERIC and self.fixed_scale:
            assert self.scale is not None
            return pa.decimal128(MAX_DIGITS, max(self.scale, 0))
        return _ARROW.get(self.kind, pa.large_string())

    def sql(self) -> str:
        """The type as DDL spells it."""
        if self.kind is Kind.OTHER:
            # Quoted, it is not one bit.
            return "text" if self.name is None else '"bit"' if self == BIT else self.name
        if self.kind is Kind.NUMERIC and self.precision is not None:
            return f"numeric({self.precision},{self.scale or 0})"
        if self.kind in (Kind.VARCHAR, Kind.BPCHAR):
            if self.length is not None:
                return f"{self.kind.value}({self.length})"
            return "bpchar" if self.kind is Kind.BPCHAR else str(self.kind.value)
        return str(self.kind.value)

    def __str__(self) -> str:
        return self.sql()


def array_of(element: DataType, *, bare: bool = True) -> DataType:
    """The type of arrays of `element`; `bare`: without its modifiers, as Postgres's functions give it."""
    if bare and element.kind is not Kind.OTHER:
        element = DataType(element.kind)
        spelled = "bpchar" if element.kind is Kind.BPCHAR else element.sql()
        return DataType(Kind.OTHER, name=f"{spelled}[]")
    element = element.bare if bare else element
    return DataType(Kind.OTHER, name=f"{element.sql()}[]", labels=element.labels)


def _other(name: str, mods: Sequence[int]) -> str | None:
    """What a type that is known by its text is called here; None for as it is written.

    What a precision leaves out of a time or an interval, its values have left out.
    """
    if name.split(" ")[0] == "interval":
        return "interval"
    if name in ("timetz", "time with time zone"):
        return "time with time zone"
    if name == '"bit"':
        return "bit"
    if name == "bit":
        return f"bit({mods[0] if mods else 1})"
    if name in ("varbit", "bit varying"):
        return f"bit varying({mods[0]})" if mods else "bit varying"
    return None


def _all_ints(mods: str) -> bool:
    return all(re.fullmatch(r"\s*-?\d+\s*", m) for m in mods.split(","))


BOOLEAN = DataType(Kind.BOOLEAN)
SMALLINT = DataType(Kind.SMALLINT)
INTEGER = DataType(Kind.INTEGER)
BIGINT = DataType(Kind.BIGINT)
REAL = DataType(Kind.REAL)
DOUBLE = DataType(Kind.DOUBLE)
NUMERIC = DataType(Kind.NUMERIC)
TEXT = DataType(Kind.TEXT)
BYTEA = DataType(Kind.BYTEA)
DATE = DataType(Kind.DATE)
TIME = DataType(Kind.TIME)
TIMESTAMP = DataType(Kind.TIMESTAMP)
TIMESTAMPTZ = DataType(Kind.TIMESTAMPTZ)
UUID = DataType(Kind.UUID)
BIT = DataType(Kind.OTHER, name="bit")
VARBIT = DataType(Kind.OTHER, name="bit varying")
TIMETZ = DataType(Kind.OTHER, name="time with time zone")


MOST_DIGITS = 6
"""How many digits of its seconds a time has at most, and where nobody says how many."""


@hashed_once
@dataclass(frozen=True)
class Column:
    """A named, typed column. `digits`: how many of its seconds a time keeps, which no value shows; `renamed_from`: the name
    that a table's column had in older rows, which may lack `name`."""

    name: str
    type: DataType
    nullable: bool = True
    digits: int = field(default=MOST_DIGITS, compare=False, repr=False)
    renamed_from: str | None = field(default=None, compare=False, repr=False)

    @derived
    def arrow(self) -> pa.Field:
        """The Arrow field of a payload; it is nullable, as deletes and outer rows leave holes."""
        return pa.field(self.name, self.type.arrow)


@hashed_once
@dataclass(frozen=True)
class Schema:
    """The columns of a collection and, where rows have an identity, its key.

    `key` holds column positions in key order; None means a multiset. Names may repeat in the middle of a plan; positions
    are what counts.
    """

    columns: tuple[Column, ...]
    key: tuple[int, ...] | None = None

    @classmethod
    def of(cls, columns: Iterable[Column], key: Sequence[str] | None = None) -> Schema:
        """A schema with its key given by names. Raises KeyError for a key column that is not there."""
        cols = tuple(columns)
        at = {c.name: i for i, c in enumerate(cols)}
        return cls(cols, None if key is None else tuple(at[k] for k in key))

    @derived
    def arrow(self) -> pa.Schema:
        """The Arrow schema of a payload."""
        return pa.schema([c.arrow for c in self.columns])

    @derived
    def names(self) -> tuple[str, ...]:
        """Column names by position."""
        return tuple(c.name for c in self.columns)

    def position(self, name: str) -> int:
        """The position of the column `name`. Raises KeyError."""
        try:
            return self.names.index(name)
        except ValueError:
            raise KeyError(name) from None

    def empty(self) -> pa.RecordBatch:
        """A payload without rows."""
        return self._empty

    @derived
    def _empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self.arrow], schema=self.arrow)
