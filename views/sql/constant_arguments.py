"""What a constant argument shows before any row is there: that the engine does not read it, though Postgres does.

Always: what Postgres does not read either stays an error of the rows for which it is asked, as it is there. Asked where a
call is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.ir import Expr, Literal
from headrace.engine.operators.expressions.datetime.zone_names import zone_of
from headrace.engine.operators.expressions.datetime.zones import made_in
from headrace.engine.operators.expressions.regex.regex_syntax import Options, options_of
from headrace.engine.operators.expressions.regex.regexes import matcher, similar

Reader = Callable[[str], object]


def _expression(pattern: str) -> object:
    return matcher(pattern, Options())


def _similar(pattern: str) -> object:
    return _expression(similar(pattern))


def _flags(first: int, *more: int) -> Mapping[int, Reader]:
    """A pattern, and flags where they may stand."""
    return {1: _expression, **dict.fromkeys((first, *more), options_of)}


_READERS: Mapping[str, Mapping[int, Reader]] = {
    "timezone": {0: zone_of},
    "date_trunc": {2: zone_of},
    "make_timestamptz": {6: made_in},
    **{name: {1: _expression} for name in ("~", "~*", "!~", "!~*")},
    **{name: {1: _similar} for name in ("similar to", "not similar to")},
    **{f"regexp_{name}": _flags(2) for name in ("match", "matches", "like", "split_to_array", "split_to_table")},
    "regexp_replace": _flags(3, 5),
    "regexp_count": _flags(3),
    "regexp_instr": _flags(5),
    "regexp_substr": _flags(4),
}


def unread(name: str, args: Sequence[Expr]) -> str | None:
    """Why one of the constants among the arguments of `name` is not read, though Postgres reads it."""
    for at, reader in _READERS.get(name, {}).items():
        arg = args[at] if at < len(args) else None
        if isinstance(arg, Literal) and isinstance(arg.value, str):
            try:
                reader(arg.value)
            except RowError as error:
                if "not supported" in str(error):
                    return str(error)
    return None
