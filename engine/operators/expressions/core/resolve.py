"""Which catalogue entry a function or operator means for given argument types, by Postgres's overload resolution.

Always: the answer names one entry and the exact parameter types, so that the binder can put a Cast wherever an
argument's type differs; an unknown literal (None) takes the parameter's type. What Postgres has and the engine has not
is refused like what Postgres has not. Called by the binder of views; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from headrace.engine.operators.expressions.core import functions
from headrace.engine.operators.expressions.core.coercion import (
    FLOATS,
    INTEGERS,
    STRINGS,
    NoSuchFunction,
    can_cast,
    category,
    common_type,
    compared_by_image,
    is_preferred,
    numeric_image,
    type_names,
)
from headrace.engine.operators.expressions.core.function_catalog import Param, Pseudo, Signature
from headrace.engine.operators.expressions.core.polymorphic import agreed
from headrace.engine.operators.expressions.core.text_types import needs_key
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.schema import BIGINT, BIT, BOOLEAN, DOUBLE, NUMERIC, TEXT, VARBIT, DataType, Kind, array_of

Types = Sequence[DataType | None]


@dataclass(frozen=True)
class Resolution:
    """The entry's resolved name, the type each argument must be cast to, and the result's type."""

    function: str
    params: tuple[DataType, ...]
    result: DataType


_SYNONYMS = {
    "!=": "<>",
    "~~": "like",
    "~~*": "ilike",
    "!~~": "not like",
    "!~~*": "not ilike",
    "character_length": "char_length",
    "pow": "power",
    "every": "bool_and",
}
_SPECIAL_FORMS = ("in", "not in", "greatest", "least")


def resolve(name: str, args: Types) -> Resolution:
    """The catalogue entry that `name` means for `args`. Raises NoSuchFunction with Postgres's message."""
    name = _SYNONYMS.get(name.lower(), name.lower())
    return _resolved(name, tuple(None if a is None else _stand_in(name, a) for a in args))


def _stand_in(function: str, arg: DataType) -> DataType:
    """The type as a function takes it: a name is a text that was cut off, networks are compared as addresses, bits are of
    any number."""
    if arg.name == "name":
        return TEXT
    if arg.name == "cidr" and function in _AS_ADDRESSES:
        return _INET
    return arg.bare if arg.kind is Kind.OTHER else arg


_INET = DataType.parse("inet")
_AS_ADDRESSES = frozenset({"=", "<>", "<", "<=", ">", ">="})


@lru_cache(maxsize=4096)
def _resolved(name: str, args: tuple[DataType | None, ...]) -> Resolution:
    if name in ("and", "or"):
        return _junction(name, args)
    if name in _SPECIAL_FORMS:
        return _of_common_type(name, args)
    if name == "||" and None in args and any(a in (BIT, VARBIT) for a in args):
        args = (VARBIT, VARBIT)  # the category of bits goes before anything that takes a text beside any value
    candidates = [s for s in functions.overloads(name) if _takes(s, len(args))]
    found = _of_arrays([s for s in candidates if s.is_polymorphic], args)
    if found is not None:
        return found
    if any(a is not None and a.element for a in args) and name == "||":
        raise _no_such(name, args)
    candidates = [s for s in candidates if not s.is_polymorphic]
    chosen = _choose(name, candidates, args) if candidates else None
    if chosen is None and candidates and any(a is not None and a.kind is Kind.TIME for a in args):
        # dates and timestamps take intervals among what is known by its text, and a time is one without being asked
        as_intervals = tuple(INTERVAL if a is not None and a.kind is Kind.TIME else a for a in args)
        chosen = _choose(name, candidates, as_intervals)
        args = args if chosen is None else as_intervals
    if chosen is None:
        raise _no_such(name, args)
    if chosen.make is None:
        raise _no_such(
            name, args, hint="Postgres has it, the engine cannot compute it exactly: see the list of functions"
        )
    return _resolution(chosen, args)


def _of_arrays(candidates: Sequence[Signature], args: Types) -> Resolution | None:
    """The first candidate whose parameters take the arrays given; of two operands an unknown one is an array too."""
    if len(args) == 2 and None in args:
        other = next((a for a in args if a is not None), None)
        if other is not None and other.element is not None and len(candidates) > 1:
            args = [other, other]
    for signature in candidates:
        params = agreed(signature, _with_arrays(signature, args), _accepts)
        if params is not None:
            result = signature.result(params) if callable(signature.result) else DataType(signature.result)
            return Resolution(signature.function, params, result)
    return None


def _with_arrays(signature: Signature, args: Types) -> Types:
    """The arguments, where a function takes an unknown one as an array of what the others are: of texts where none is known."""
    pairs = list(zip(signature.params, args, strict=False))
    if signature.function.startswith("||") or (Pseudo.COMPATIBLE_ARRAY, None) not in pairs:
        return args
    if any(p is Pseudo.COMPATIBLE_ARRAY and a is not None for p, a in pairs):
        return args
    known = [a for p, a in pairs if p is Pseudo.COMPATIBLE and a is not None]
    element = common_type(known) if known else TEXT
    return [
        array_of(element) if p is Pseudo.COMPATIBLE_ARRAY else element if p is Pseudo.COMPATIBLE and a is None else a
        for p, a in pairs
    ]


def _junction(name: str, args: Types) -> Resolution:
    for arg in args:
        if arg is not None and arg.kind is not Kind.BOOLEAN:
            raise NoSuchFunction(f"argument of {name.upper()} must be type boolean, not type {type_names([arg])[0]}")
    return Resolution(name, (BOOLEAN,) * len(args), BOOLEAN)


def _of_common_type(name: str, args: Types) -> Resolution:
    common = common_type(args)
    matched = DataType(Kind.TEXT) if common.kind is Kind.VARCHAR else common
    for signature in functions.overloads(name):
        if signature.params[0] is matched.kind:
            _check_comparable(name, matched, args)
            if signature.result is not Kind.BOOLEAN:
                return Resolution(signature.function, (common,) * len(args), common)
            # Only the list is brought to the common type: a date beyond all timestamps is compared, not out of range.
            first = args[0] if args[0] is not None and args[0].kind is Kind.DATE else matched
            return Resolution(signature.function, (first, *(matched for _ in args[1:])), BOOLEAN)
    raise _no_such("=" if "in" in name.split() else name, args)


def _takes(signature: Signature, count: int) -> bool:
    return count >= len(signature.params) if signature.variadic else count == len(signature.params)


def _param(signature: Signature, position: int) -> Param:
    return signature.params[min(position, len(signature.params) - 1)]


def _plain(signature: Signature, position: int) -> Kind | None:
    kind = _param(signature, position)
    return kind.kind if isinstance(kind, DataType) else kind if isinstance(kind, Kind) else None


def _choose(name: str, candidates: list[Signature], args: Types) -> Signature | None:
    exact = _exact(candidates, args)
    if exact is not None:
        return exact
    usable = [s for s in candidates if all(_accepts(_param(s, i), a) for i, a in enumerate(args))]
    if len(usable) < 2:
        return usable[0] if usable else None
    best = _most(usable, args, lambda kind, arg: arg is not None and (kind is arg.kind or kind == arg))
    if len(best) > 1:
        best = _most(best, args, _exact_or_preferred)
    if len(best) > 1 and None in args:
        best = _by_unknowns(best, args)
    if len(best) == 1:
        return best[0]
    found = _called(name, args).replace("operator ", "operator is not unique: ", 1)
    several = found if found.startswith("operator") else f"{found} is not unique"
    raise NoSuchFunction(several, hint="add explicit casts so that one candidate is the best")


def _exact(candidates: Sequence[Signature], args: Types) -> Signature | None:
    """The candidate of exactly these types; of two operands an unknown one is taken for the other's type."""
    given = list(args)
    if len(given) == 2 and given.count(None) == 1:
        given = [given[0] or given[1]] * 2
    known = [a for a in given if a is not None]
    if len(known) < len(given):
        return None
    # A type of its own goes before any type that is known by its text.
    for is_it in (_is_type, _is_kind):
        for signature in candidates:
            if all(is_it(_param(signature, i), arg) for i, arg in enumerate(known)):
                return signature
    return None


def _is_type(param: Param, arg: DataType) -> bool:
    return param == arg or (param is arg.kind and arg.kind is not Kind.OTHER)


def _is_kind(param: Param, arg: DataType) -> bool:
    return param is arg.kind


def _accepts(kind: Param, arg: DataType | None) -> bool:
    if isinstance(kind, Pseudo):
        return False
    if isinstance(kind, DataType):
        return arg is None or can_cast(arg, kind, "implicit")
    return arg is None or kind is None or can_cast(arg, DataType(kind, name=arg.name), "implicit")


def _exact_or_preferred(kind: Param, arg: DataType | None) -> bool:
    if arg is None or kind is None or not isinstance(kind, Kind):
        return kind is not None and kind == arg
    return kind is arg.kind or (is_preferred(kind) and category(kind) == category(arg.kind))


def _most(
    candidates: Sequence[Signature], args: Types, good: Callable[[Param, DataType | None], bool]
) -> list[Signature]:
    scores = [sum(good(_param(s, i), a) for i, a in enumerate(args)) for s in candidates]
    highest = max(scores)
    return [s for s, score in zip(candidates, scores, strict=True) if score == highest]


def _group(candidates: Sequence[Signature], position: int) -> str | None:
    """The category that an unknown literal is taken for: a string if any candidate takes one, else the only one."""
    groups = {_category(s, position) for s in candidates if _plain(s, position) is not None}
    return "S" if "S" in groups else groups.pop() if len(groups) == 1 else None


def _category(signature: Signature, position: int) -> str | None:
    """The category of a parameter's type; None for one of any type."""
    param, kind = _param(signature, position), _plain(signature, position)
    if isinstance(param, DataType) and param.name == _TIMETZ:
        kind = Kind.TIME
    return None if kind is None else category(kind)


def _by_unknowns(candidates: Sequence[Signature], args: Types) -> list[Signature]:
    """Narrow by what the unknown literals may be: a string if anyone takes one, else the one category all agree on."""
    left = list(candidates)
    if not any(args) and None in (_group(left, i) for i in range(len(args))):
        # Of nothing but unknown literals each must tell of what kind it is.
        return left
    for i, arg in enumerate(args):
        if arg is not None:
            continue
        group = _group(left, i)
        if group is None:
            continue
        left = [s for s in left if _category(s, i) == group]
        preferred = [s for s in left if (k := _plain(s, i)) is not None and is_preferred(k)]
        left = preferred or left
    if len(left) > 1:
        known = {a.kind for a in args if a is not None}
        if len(known) == 1:
            kind = known.pop()
            same = [s for s in left if all(_accepts(_param(s, i), DataType(kind)) for i in range(len(args)))]
            left = same if len(same) == 1 else left
    return left


def _resolution(signature: Signature, args: Types) -> Resolution:
    if signature.alias is not None:
        kinds: Sequence[Param] = signature.alias
        signature = next(s for s in functions.overloads(signature.name) if s.params == signature.alias)
    else:
        kinds = [_param(signature, i) for i in range(len(args))]
    params = tuple(_parameter(kind, arg) for kind, arg in zip(kinds, args, strict=True))
    if signature.params == (Kind.OTHER, Kind.OTHER):
        params = (_matched(signature.name, args),) * len(args)
    if Kind.OTHER in signature.params:
        _check_other(signature.name, next(p for p in params if p.kind is Kind.OTHER), args)
    result = signature.result(params) if callable(signature.result) else DataType(signature.result)
    return Resolution(signature.function, params, result)


def _parameter(kind: Param, arg: DataType | None) -> DataType:
    if isinstance(kind, DataType):
        return kind
    if kind is None or isinstance(kind, Pseudo):
        return TEXT if arg is None else arg
    if arg is None:
        return INTERVAL if kind is Kind.OTHER else DataType(kind)
    if kind is Kind.NUMERIC:
        return numeric_image(arg)
    return arg if arg.kind is kind else DataType(kind, name=arg.name)


_COMPARED = ("=", "<>", "in", "not in", "is distinct from", "is not distinct from", "nullif")
_ORDERING = ("<", "<=", ">", ">=", "greatest", "least")


def _check_other(name: str, datatype: DataType, args: Types) -> None:
    """Of the types that the engine knows by their text, comparisons take any, and all else intervals."""
    if name in _COMPARED or name in _ORDERING:
        _check_comparable(name, datatype, args)
    elif any(a is not None and a.kind is Kind.OTHER and a.name != "interval" for a in args):
        raise _no_such(name, args)


def _check_comparable(name: str, datatype: DataType, args: Types) -> None:
    if datatype.kind is not Kind.OTHER:
        return
    _matched(name, args)
    sorts = needs_key(datatype)
    if not (sorts or (name not in _ORDERING and compared_by_image(datatype))):
        raise _no_such(name, args, hint="the engine compares this type only where its text image decides equality")


def _matched(name: str, args: Types) -> DataType:
    """The type that operands of types that are known by their text have in common. Raises NoSuchFunction."""
    try:
        return common_type(args)
    except NoSuchFunction:
        raise _no_such(name, args) from None


def _is_operator(name: str) -> bool:
    return not (name[0].isalpha() or name[0] in '_"') or name in (
        "like",
        "ilike",
        "not like",
        "not ilike",
        "is distinct from",
    )


def _called(name: str, args: Types) -> str:
    names = type_names(args)
    if _is_operator(name):
        return f"operator {names[0]} {name} {names[1]}" if len(names) == 2 else f"operator {name} {names[0]}"
    return f"function {name}({', '.join(names)})"


def _no_such(name: str, args: Types, hint: str = "") -> NoSuchFunction:
    names = type_names(args)
    if _is_operator(name) and names:
        what = f"{names[0]} {name} {names[1]}" if len(names) > 1 else f"{name} {names[0]}"
        return NoSuchFunction(f"operator does not exist: {what}", hint=hint)
    return NoSuchFunction(f"function {name}({', '.join(names)}) does not exist", hint=hint)


_ORDERED = (
    *INTEGERS,
    *FLOATS,
    *STRINGS,
    Kind.NUMERIC,
    Kind.DATE,
    Kind.TIME,
    Kind.TIMESTAMP,
    Kind.TIMESTAMPTZ,
    Kind.BYTEA,
)


_TIMETZ = "time with time zone"
_EXTREME = ("inet", "interval", "oid", _TIMETZ)
"""Types known by their text, enums apart, of which Postgres has a least and a greatest."""


def aggregate_type(function: str, arg: DataType | None) -> DataType:
    """The result type of an aggregate; `arg` None is count(*). Raises NoSuchFunction."""
    function = _SYNONYMS.get(function, function)
    if function == "count":
        return BIGINT
    if arg is None:
        raise NoSuchFunction(f"function {function}(unknown) is not unique", hint="cast the argument")
    kind = arg.kind
    if function in ("min", "max") and arg.name == "name":
        return TEXT
    if function in ("min", "max") and (kind in _ORDERED or arg.labels or arg.name in _EXTREME or arg.element):
        return TEXT if kind is Kind.VARCHAR else DataType(kind) if kind is Kind.BPCHAR else arg
    if function == "sum" and kind in (Kind.SMALLINT, Kind.INTEGER):
        return BIGINT
    if function == "sum" and kind in (Kind.BIGINT, Kind.NUMERIC):
        exact = numeric_image(arg)
        return DataType(Kind.NUMERIC, scale=max(exact.scale or 0, 0)) if exact.fixed_scale else NUMERIC
    if function == "sum" and kind in FLOATS:
        return arg
    if function == "avg" and kind in (*INTEGERS, Kind.NUMERIC):
        return NUMERIC
    if function == "avg" and kind in FLOATS:
        return DOUBLE
    if function in ("bool_and", "bool_or") and kind is Kind.BOOLEAN:
        return BOOLEAN
    raise NoSuchFunction(f"function {function}({type_names([arg])[0]}) does not exist")
