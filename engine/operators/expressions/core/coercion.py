"""Which Postgres types turn into which, and the type several expressions agree on.

Always: the rules are those of `pg_cast` for the types of `headrace.engine.schema`, minus what the engine cannot compute exactly;
numeric types carry their display scale as long as every value is known to have it. Called by `resolve` and by the
binder of views; pure functions of types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as Choice

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.conversions import conversion_of
from headrace.engine.operators.expressions.core.text_types import family_of
from headrace.engine.schema import NUMERIC, TEXT, DataType, Kind

Context = Choice["implicit", "assignment", "explicit"]


class NoSuchFunction(HeadraceError):
    """No function, operator or cast takes these types, or none that the engine computes as Postgres does."""

    code = "function"


_BY_IMAGE = {
    *("inet", "cidr", "macaddr", "macaddr8", "oid", "xid", "xid8", "cid", "pg_lsn", "money", "name", "bit", "varbit"),
}
_NOT_BY_IMAGE = {
    *("interval", "citext", "xml", "point", "line", "lseg", "box", "path", "polygon", "circle", "hstore", "geometry"),
    *(
        "geography",
        "tsvector",
        "tsquery",
        "jsonpath",
        "record",
        "vector",
        "cube",
        "semver",
    ),
}


def _base_name(datatype: DataType) -> str:
    return (datatype.name or "").lower().rpartition(".")[2].partition("(")[0].strip()


def compared_by_image(datatype: DataType) -> bool:
    """Whether values of an OTHER type are equal exactly when their text images are (an enum, inet, integer[])."""
    family = family_of(datatype)
    if family is not None:
        return family.exact
    base = _base_name(datatype)
    return base in _BY_IMAGE or (
        base not in _NOT_BY_IMAGE and datatype.labels is None and base.replace("_", "").isalnum()
    )


def literal_is_image(datatype: DataType) -> bool:
    """Whether a literal of this OTHER type is its image as it stands: an enum's label, but no `10.0.0.1/32` as inet."""
    base = _base_name(datatype)
    return compared_by_image(datatype) and base not in _BY_IMAGE and not base.endswith("]")


INTEGERS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
FLOATS = (Kind.REAL, Kind.DOUBLE)
STRINGS = (Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR)

_CATEGORY: dict[Kind, str] = {
    **dict.fromkeys((*INTEGERS, *FLOATS, Kind.NUMERIC), "N"),
    **dict.fromkeys(STRINGS, "S"),
    **dict.fromkeys((Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), "D"),
    Kind.BOOLEAN: "B",
}
_PREFERRED = {Kind.BOOLEAN, Kind.TEXT, Kind.DOUBLE, Kind.TIMESTAMPTZ}

_RANK = {"implicit": 0, "assignment": 1, "explicit": 2}


def _casts() -> dict[tuple[Kind, Kind], str]:
    numbers = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.NUMERIC, Kind.REAL, Kind.DOUBLE)
    table: dict[tuple[Kind, Kind], str] = {}
    for i, src in enumerate(numbers):
        for j, dst in enumerate(numbers):
            if i != j:
                table[src, dst] = "implicit" if i < j else "assignment"
    for src in STRINGS:
        for dst in STRINGS:
            table[src, dst] = "implicit"
    table[Kind.INTEGER, Kind.BOOLEAN] = table[Kind.BOOLEAN, Kind.INTEGER] = "explicit"
    stamps = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
    for i, src in enumerate(stamps):
        for j, dst in enumerate(stamps):
            if i != j:
                table[src, dst] = "implicit" if i < j else "assignment"
    table[Kind.TIMESTAMP, Kind.TIME] = table[Kind.TIMESTAMPTZ, Kind.TIME] = "assignment"
    for kind in Kind:
        if kind not in STRINGS:
            for text in STRINGS:
                table[kind, text] = "assignment"
                if kind is not Kind.OTHER:
                    table[text, kind] = "explicit"
    table[Kind.JSON, Kind.JSONB] = table[Kind.JSONB, Kind.JSON] = "assignment"
    for kind in (*numbers, Kind.BOOLEAN):
        table[Kind.JSONB, kind] = "explicit"
    return table


_CASTS = _casts()


def category(kind: Kind) -> str:
    """Postgres's type category: N numbers, S strings, D dates, B boolean, U anything else."""
    return _CATEGORY.get(kind, "U")


def is_preferred(kind: Kind) -> bool:
    """Whether `kind` is the preferred type of its category."""
    return kind in _PREFERRED


def casts() -> dict[tuple[Kind, Kind], str]:
    """Every pair of different kinds that can be cast, with the weakest context that allows it."""
    return dict(_CASTS)


def can_cast(src: DataType | None, dst: DataType, context: Context) -> bool:
    """Whether a `src` may become a `dst` in `context`; None is an unknown literal, which may become anything."""
    if src is None or src == dst:
        return True
    named = conversion_of(src, dst)
    if named is not None:
        return _RANK[named.context] <= _RANK[context]
    if src.name == "name":
        return dst.kind in STRINGS or can_cast(TEXT, dst, context)
    if dst.name == "name":
        return can_cast(src, TEXT, context) and (context == "explicit" or src.kind not in STRINGS)
    if src.element is not None and dst.element is not None:
        return can_cast(src.element, dst.element, context)
    if src.kind is dst.kind:
        return src.kind is not Kind.OTHER or src.name == dst.name
    if (dst.element is not None or family_of(dst) is not None) and src.kind in STRINGS:
        return context == "explicit"
    allowed = _CASTS.get((src.kind, dst.kind))
    return allowed is not None and _RANK[allowed] <= _RANK[context]


def numeric_image(source: DataType) -> DataType:
    """The numeric type that holds a `source` exactly and with the display scale that Postgres's cast gives it."""
    if source.kind is Kind.NUMERIC:
        return source
    return DataType(Kind.NUMERIC, scale=0) if source.kind in INTEGERS else NUMERIC


def merge(left: DataType, right: DataType) -> DataType:
    """The one type for values of `left` and `right`, which are of one kind: modifiers stay only where they agree."""
    if left == right:
        return left
    if left.kind is Kind.NUMERIC and left.fixed_scale and right.fixed_scale:
        scales = max(left.scale or 0, 0), max(right.scale or 0, 0)
        if scales[0] == scales[1]:
            return DataType(Kind.NUMERIC, scale=scales[0])
    return DataType(left.kind, name=left.name)


def common_type(types: Sequence[DataType | None]) -> DataType:
    """The type of CASE, COALESCE, UNION, GREATEST over `types`; None is an unknown literal or NULL.

    The order counts between strings: Postgres
    puts CASE's ELSE first. All unknown gives text. Raises NoSuchFunction when the types do not match. A numeric
    scale that all known types share is kept: `parse_literal` refuses an unknown literal of another scale. A length is not
    kept beside one: it may be longer.
    """
    known = [t for t in types if t is not None]
    if not known:
        return TEXT
    best = known[0]
    for other in known[1:]:
        if other.kind is best.kind:
            best = best if best.kind is not Kind.OTHER else _common_name(best, other)
            continue
        if category(best.kind) != category(other.kind) or category(best.kind) == "U":
            raise NoSuchFunction(f"types {_bare(best)} and {_bare(other)} cannot be matched")
        if not is_preferred(best.kind) and can_cast(best, other, "implicit") and not can_cast(other, best, "implicit"):
            best = other
    for other in known:
        if not can_cast(other, DataType(best.kind, name=best.name), "implicit"):
            raise NoSuchFunction(f"could not convert type {_bare(other)} to {_bare(best)}")
    if best.kind is Kind.NUMERIC:
        merged = numeric_image(known[0])
        for other in known[1:]:
            merged = merge(merged, numeric_image(other))
        return merged
    if best.kind is Kind.OTHER:
        return best
    merged = next(t for t in known if t.kind is best.kind)
    for other in known:
        merged = merge(merged, other) if other.kind is best.kind else DataType(best.kind, name=best.name)
    return merged if len(known) == len(types) or merged.length is None else merged.bare


def _common_name(one: DataType, other: DataType) -> DataType:
    """The type of values of two types that are known by their text. Raises NoSuchFunction."""
    if one.name == other.name:
        return one
    if one.bare == other.bare:
        return one.bare
    if can_cast(other, one.bare, "implicit"):
        return one.bare
    if can_cast(one, other.bare, "implicit"):
        return other.bare
    if one.element is not None and other.element is not None:
        raise NoSuchFunction(f"could not convert type {_bare(other)} to {_bare(one)}")
    raise NoSuchFunction(f"types {_bare(one)} and {_bare(other)} cannot be matched")


def _bare(datatype: DataType) -> str:
    return datatype.bare.name or "other" if datatype.kind is Kind.OTHER else datatype.kind.value


def type_names(types: Sequence[DataType | None]) -> list[str]:
    """The types as Postgres's messages spell them: without modifiers, an unknown literal as `unknown`."""
    return ["unknown" if t is None else _bare(t) for t in types]
