"""The catalogue put together: importing this module registers every family; docs are generated from what it lists.

Always: one entry a signature, found by its resolved name. Called by `resolve`, `evaluate` and the documentation.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.operators.expressions import arithmetic, comparison, numeric
from engine.operators.expressions.coercion import casts
from engine.operators.expressions.registry import Signature, by_function, every, named

_FAMILIES = (arithmetic, comparison, numeric)


def catalogue() -> tuple[tuple[str, str, str], ...]:
    """(kind of entry, how it is written, result or context) of every function, operator and cast, sorted."""
    rows = [("function", s.function, _result(s)) for s in every()]
    rows += [("cast", f"{a.value} as {b.value}", context) for (a, b), context in casts().items()]
    return tuple(sorted(rows))


def _result(signature: Signature) -> str:
    return "depends on arguments" if callable(signature.result) else signature.result.value


def fallback_users() -> tuple[str, ...]:
    """Resolved names of the entries evaluated in Python once per distinct value, sorted."""
    return tuple(sorted(s.function for s in every() if s.fallback))


def overloads(name: str) -> Sequence[Signature]:
    """The signatures of a function or operator."""
    return named(name)


__all__ = ["by_function", "catalogue", "fallback_users", "overloads"]
