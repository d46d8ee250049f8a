"""The catalogue put together: importing this module registers every family; docs are generated from what it lists.

Always: one entry a signature, found by its resolved name. Called by `resolve`, `evaluate` and the documentation.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.operators.expressions.array import array_making, array_order, arrays
from headrace.engine.operators.expressions.core import (
    comparison,
    framing,
    inputs,
    internal,
    ordered,
    record_order,
    sets,
)
from headrace.engine.operators.expressions.core.coercion import casts
from headrace.engine.operators.expressions.core.conversions import conversions
from headrace.engine.operators.expressions.core.function_catalog import Signature, by_function, every, named
from headrace.engine.operators.expressions.datetime import calendar, intervals, zoned_times, zones
from headrace.engine.operators.expressions.json import (
    functions,
    json_changes,
    json_order,
    json_records,
    jsonpath_functions,
)
from headrace.engine.operators.expressions.network import networks
from headrace.engine.operators.expressions.numeric import arithmetic, doubles, numeric, trigonometry
from headrace.engine.operators.expressions.range import ranges
from headrace.engine.operators.expressions.regex import regexes
from headrace.engine.operators.expressions.text import binary, bits, codings, formats, patterns, quoting, strings

FAMILIES = (
    arithmetic,
    comparison,
    doubles,
    trigonometry,
    numeric,
    strings,
    patterns,
    regexes,
    binary,
    bits,
    quoting,
    calendar,
    intervals,
    zoned_times,
    zones,
    formats,
    array_order,
    arrays,
    sets,
    functions,
    json_changes,
    json_order,
    json_records,
    jsonpath_functions,
    networks,
    ranges,
    record_order,
    inputs,
    ordered,
    internal,
    framing,
    array_making,
    codings,
)
"""The modules whose import fills the catalogue."""

_FORMS = (("form", "and", "boolean"), ("form", "or", "boolean"), ("form", "case", "common type of its branches"),
          ("form", "coalesce", "common type of its arguments"))  # fmt: skip


def catalogue() -> tuple[tuple[str, str, str], ...]:
    """(form, function, operator, cast or refused; how it is written; result or weakest context), sorted."""
    rows = [_row(s) for s in every() if s.alias is None and not s.name.startswith("$")]
    rows += [("cast", f"{a.value} as {b.value}", context) for (a, b), context in casts().items()]
    rows += [("cast", f"{a} as {b}", context) for a, b, context in conversions() if a != b]
    return tuple(sorted([*rows, *_FORMS]))


def _row(signature: Signature) -> tuple[str, str, str]:
    if signature.make is None:
        return "refused", signature.function, "Postgres has it"
    kind = "function" if signature.name.replace("_", "").isalnum() else "operator"
    return kind, signature.function, "of its arguments" if callable(signature.result) else signature.result.value


def fallback_users() -> tuple[str, ...]:
    """Resolved names of the entries evaluated in Python once per distinct value, sorted.

    Others go there only for arguments no kernel takes: a pattern or length that is a column, numerics of unknown scale.
    """
    return tuple(sorted(s.function for s in every() if s.fallback and not s.name.startswith("$")))


def overloads(name: str) -> Sequence[Signature]:
    """The signatures of a function or operator."""
    return named(name)


__all__ = ["FAMILIES", "by_function", "catalogue", "fallback_users", "overloads"]
