"""Range and multirange functions and operators, over their text images.

Always: a range is taken as the multirange of itself wherever an operator has both; the functions are those of Postgres for
its own range types. Registered in the catalogue, and the types with the families, at import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.engine.operators.expressions.core import fallback, text_io, text_output
from headrace.engine.operators.expressions.core.conversions import conversion
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Result, Values, entry
from headrace.engine.operators.expressions.core.sets import each
from headrace.engine.operators.expressions.core.text_types import Family, family
from headrace.engine.operators.expressions.range.range_text import (
    ELEMENTS,
    Element,
    Interval,
    Ranges,
    common,
    element_of,
    united,
    without,
)
from headrace.engine.schema import TEXT, DataType, Kind

STRING = pa.large_string()
Set = list[Interval]
BROKEN_UNION = "result of range union would not be contiguous"
BROKEN_DIFFERENCE = "result of range difference would not be contiguous"


def _is_multi(name: str) -> bool:
    return name.endswith("multirange")


def _type(name: str) -> DataType:
    return DataType(Kind.OTHER, name=name)


def _taken(made: Ranges, kind: DataType, image: str) -> Set:
    """A range, multirange or element as intervals."""
    name = kind.name or ""
    if kind.kind is not Kind.OTHER:
        cut = made.cut(image, 0)
        return [(cut, cut._replace(side=1))]
    if _is_multi(name):
        return made.several(image)
    interval = made.read(image)
    return [] if interval is None else [interval]


def _over(element: Element, function: Callable[..., Any], lane: pa.DataType, *, later: bool = False) -> Maker:
    """`function(ranges, set, set …)` of intervals; its arguments are ranges, multiranges or elements. `later`: of equal
    bounds the later argument's spelling is kept.
    """

    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        def one(*found: str) -> Any:
            made = Ranges(element)
            pairs = list(zip(params, found, strict=True))[:: -1 if later else 1]
            return function(made, *[_taken(made, p, v) for p, v in pairs][:: -1 if later else 1])

        def kernel(*values: Values) -> Outcome:
            return fallback.map_values(
                one, lane, [text_output.image_of(v, p) for v, p in zip(values, params, strict=True)]
            )

        return kernel

    return make


def _contains(_made: Ranges, one: Set, other: Set) -> bool:
    return all(any(a[0] <= b[0] and b[1] <= a[1] for a in one) for b in other)


_TESTS: dict[str, Callable[[Ranges, Set, Set], bool]] = {
    "&&": lambda _, a, b: any(x[0] < y[1] and y[0] < x[1] for x in a for y in b),
    "<<": lambda _, a, b: bool(a and b) and a[-1][1] <= b[0][0],
    ">>": lambda _, a, b: bool(a and b) and a[0][0] >= b[-1][1],
    "&<": lambda _, a, b: bool(a and b) and a[-1][1] <= b[-1][1],
    "&>": lambda _, a, b: bool(a and b) and a[0][0] >= b[0][0],
    "-|-": lambda _, a, b: bool(a and b) and (a[-1][1] == b[0][0] or b[-1][1] == a[0][0]),
}
_NAMED_TESTS = {
    "overlaps": "&&", "before": "<<", "after": ">>", "overleft": "&<", "overright": "&>", "adjacent": "-|-",
}  # fmt: skip


def _one(made: Ranges, intervals: Set, broken: str) -> str:
    if len(intervals) > 1:
        raise RowError(broken)
    return made.spelled(intervals[0] if intervals else None)


def _hull(intervals: Set) -> Set:
    return [(intervals[0][0], max(i[1] for i in intervals))] if intervals else []


def _end(made: Ranges, found: Set, last: bool) -> str | None:
    return made.value(found[-1][1] if last else found[0][0]) if found else None


def _ends(_made: Ranges, found: Set, last: bool, *, infinite: bool) -> bool:
    if not found:
        return False
    cut = found[-1][1] if last else found[0][0]
    return bool(cut.rank) if infinite else not cut.rank and cut.side == int(last)


def _reader(element: Element, *, multi: bool) -> Callable[[str], str]:
    def read(text: str) -> str:
        made = Ranges(element)
        return made.all_spelled(made.several(text)) if multi else made.spelled(made.read(text))

    return read


def _order(element: Element, *, multi: bool) -> Callable[[str], str]:
    """Prefix-free: the cuts' ranks, keys and sides, each key up to a NUL; empty before all."""

    def order(image: str) -> str:
        made = Ranges(element)
        found = made.several(image) if multi else [i] if (i := made.read(image)) is not None else []
        cuts = (f"{c.rank + 2}{c.key}\0{c.side}" for interval in found for c in interval)
        return "".join(f"\2{c}" for c in cuts) + "\1"

    return order


def _several_of(element: Element) -> Callable[[str, DataType], str]:
    """A range as the multirange of itself."""

    def one(image: str, _target: DataType) -> str:
        made = Ranges(element)
        found = made.read(image)
        return made.all_spelled([] if found is None else [found])

    return one


def _constructor(element: Element) -> Maker:
    def one(lower: str | None, upper: str | None, *bounds: str | None) -> str:
        if None in bounds:
            raise RowError("range constructor flags argument must not be null")
        made = Ranges(element)
        return made.spelled(made.made(lower, upper, *(b for b in bounds or ("[)",) if b is not None)))

    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        return lambda *values: fallback.map_values(
            one, STRING, [text_output.image_of(v, p) for v, p in zip(values, params, strict=True)], strict=False
        )

    return make


def _value(element: Element, last: bool) -> Maker:
    def make(params: tuple[DataType, ...], result: DataType) -> Kernel:
        texts = _over(element, lambda made, found: _end(made, found, last), STRING)(params, result)

        def kernel(value: Values) -> Outcome:
            found, errors = texts(value)
            return (*text_io.read_text(found, result)[:1], errors)

        return kernel

    return make


def _functions(name: str, several: str, element: Element) -> None:
    """What a range type and its multirange type have each, and what they give."""
    one, many = _type(name), _type(several)
    value = element.type
    bare: Result = value.kind
    for bounds in ((), (TEXT,)):
        entry(name, (value, value, *bounds), lambda _: one, _constructor(element), strict=False, fallback=True)
    collected = lambda made, *sets: made.all_spelled(united([i for s in sets for i in s]))  # noqa: E731
    entry(several, (one,), lambda _: many, _over(element, collected, STRING), variadic=True, fallback=True)
    entry(several, (), lambda _: many, lambda _p, _r: lambda: (pa.scalar("{}", STRING), None), fallback=True)
    entry("multirange", (one,), lambda _: many, _over(element, collected, STRING), fallback=True)
    for own in (one, many):
        entry("lower", (own,), bare, _value(element, False), fallback=True)
        entry("upper", (own,), bare, _value(element, True), fallback=True)
        empty = _over(element, lambda _made, found: not found, pa.bool_())
        entry("isempty", (own,), Kind.BOOLEAN, empty, fallback=True)
        for end, last in (("lower", False), ("upper", True)):
            for suffix, infinite in (("inc", False), ("inf", True)):
                asked = lambda made, found, a=last, b=infinite: _ends(made, found, a, infinite=b)  # noqa: E731
                entry(f"{end}_{suffix}", (own,), Kind.BOOLEAN, _over(element, asked, pa.bool_()), fallback=True)
    hull = _over(
        element, lambda made, *sets: _one(made, _hull(sorted(i for s in sets for i in s)), ""), STRING, later=True
    )
    entry("range_merge", (one, one), lambda _: one, hull, fallback=True)
    entry("range_merge", (many,), lambda _: one, hull, fallback=True)
    rows = each(lambda text: [] if text is None else _spelled_apart(element, text))
    entry("unnest", (many,), lambda _: one, rows, fallback=True, columns=(("unnest", None),))


def _spelled_apart(element: Element, text: str) -> list[str]:
    made = Ranges(element)
    return [made.spelled(i) for i in made.several(text)]


def _operators(name: str, several: str, element: Element) -> None:
    kinds = (_type(name), _type(several))
    for left in kinds:
        for right in kinds:
            words = [_word(left), _word(right)]
            for sign, test in _TESTS.items():
                entry(sign, (left, right), Kind.BOOLEAN, _over(element, test, pa.bool_()), fallback=True)
            for spoken, sign in _NAMED_TESTS.items():
                spelled = f"{words[0]}_{spoken}" + ("" if left == right else f"_{words[1]}")
                entry(spelled, (left, right), Kind.BOOLEAN, _over(element, _TESTS[sign], pa.bool_()), fallback=True)
            _containing(element, left, right, _suffix(left, right))
        _containing(element, left, element.type, "_elem")
    for own in kinds:
        multi = own is kinds[1]
        spell = (lambda made, found, _: made.all_spelled(found)) if multi else _one
        for sign, combine, broken in (
            ("+", lambda a, b: united([*a, *b]), BROKEN_UNION), ("*", common, ""), ("-", without, BROKEN_DIFFERENCE),
        ):  # fmt: skip
            combined = lambda made, a, b, c=combine, w=broken, s=spell: s(made, c(a, b), w)  # noqa: E731
            result = lambda _, o=own: o  # noqa: E731
            named = {"+": "union", "*": "intersect", "-": "minus"}[sign]
            for spelled in (sign, f"{_word(own)}_{named}"):
                entry(spelled, (own, own), result, _over(element, combined, STRING, later=sign == "+"), fallback=True)


def _word(kind: DataType) -> str:
    return "multirange" if _is_multi(kind.name or "") else "range"


def _suffix(left: DataType, right: DataType) -> str:
    return "" if left == right else f"_{_word(right)}"


def _containing(element: Element, left: DataType, right: DataType, suffix: str) -> None:
    """`left @> right`, and the other way round, by sign and by name."""
    within = lambda made, a, b: _contains(made, b, a)  # noqa: E731
    for spelled in ("@>", f"{_word(left)}_contains{suffix}"):
        entry(spelled, (left, right), Kind.BOOLEAN, _over(element, _contains, pa.bool_()), fallback=True)
    if suffix == "_elem":
        for spelled in ("<@", f"elem_contained_by_{_word(left)}"):
            entry(spelled, (right, left), Kind.BOOLEAN, _over(element, within, pa.bool_()), fallback=True)
        return
    for spelled in ("<@", f"{_word(left)}_contained_by{suffix}"):
        entry(spelled, (left, right), Kind.BOOLEAN, _over(element, within, pa.bool_()), fallback=True)


def _register() -> None:
    for name in ELEMENTS:
        several = name.replace("range", "multirange")
        element = element_of(name)
        # An instant is spelled in any time zone, a number in any scale.
        exact = name not in ("numrange", "tstzrange")
        for own, multi in ((name, False), (several, True)):
            family(own, Family(_reader(element, multi=multi), _order(element, multi=multi), exact))
        conversion(_type(name), _type(several), "explicit", _several_of(element))
        _functions(name, several, element)
        _operators(name, several, element)


_register()
