"""The catalogue's shelf: every function and operator with its signature, result type and implementation.

Always: a signature's name `f(kind,kind)` is unique and stable (plans are fingerprinted by it); an implementation is
made once for each call (types known) and is then a kernel over Arrow columns. The families register here at import;
`resolve` and `evaluate` read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.engine.errors import InvariantBroken
from headrace.engine.schema import DataType, Kind

Values = pa.Array | pa.Scalar
"""A column, or a constant that stands for a column of any length."""

Outcome = tuple[Any, Any]
"""(values, errors): errors is None, or messages where a row fails; values are null there."""

Kernel = Callable[..., Outcome]
"""Takes one `Values` an argument, at least one of them a column."""

Maker = Callable[[tuple[DataType, ...], DataType], Kernel]
"""Makes the kernel of one call from its parameter types and its result type."""


class Pseudo(enum.Enum):
    """Parameters that take any array, or any type that is the others' element: all of one call agree on one element.

    The plain ones must be that type, the compatible ones are brought to the type that they have in common.
    """

    ARRAY = "anyarray"
    ELEMENT = "anyelement"
    COMPATIBLE_ARRAY = "anycompatiblearray"
    COMPATIBLE = "anycompatible"


Param = Kind | Pseudo | DataType | None
"""A kind; any array or element; one type of those known by their text (text[]); any type."""

Result = Kind | Callable[[tuple[DataType, ...]], DataType]


@dataclass(frozen=True)
class Evaluated:
    """Values of the expression's lane, and messages: `errors[i]` not null means that row i fails; its value is null."""

    values: pa.Array
    errors: pa.Array | None


@dataclass(frozen=True)
class Signature:
    """One catalogue entry. `params` are kinds; None takes any type. `variadic`: the last parameter repeats.

    `strict`: NULL in gives NULL out, and the kernel is not asked about a constant NULL. `fallback`: evaluated in Python
    once per distinct value. `make` None: Postgres has it and the engine refuses it, so that no other overload is taken
    in its place. `alias`: the entry only takes part in resolution; the one of these parameters is what gets called.
    `columns`: of a function that returns a set of rows, their names and types (of one column without a name of its own,
    the result's); `make` makes a `spread.SetKernel` then.
    """

    name: str
    params: tuple[Param, ...]
    result: Result
    make: Maker | None
    strict: bool = True
    variadic: bool = False
    fallback: bool = False
    alias: tuple[Kind, ...] | None = None
    columns: tuple[tuple[str, DataType | None], ...] = ()

    @cached_property
    def function(self) -> str:
        """The resolved name, as `Call.function` holds it."""
        kinds = ",".join("any" if k is None else str(k) if isinstance(k, DataType) else k.value for k in self.params)
        return f"{self.name}({kinds}{',...' if self.variadic else ''})"

    @cached_property
    def is_polymorphic(self) -> bool:
        """Whether some parameter takes any array or element."""
        return any(isinstance(p, Pseudo) for p in self.params)


_BY_NAME: dict[str, list[Signature]] = {}
_BY_FUNCTION: dict[str, Signature] = {}


def register(signature: Signature) -> None:
    """Adds an entry. Raises InvariantBroken if its resolved name is taken."""
    if signature.function in _BY_FUNCTION:
        raise InvariantBroken("a catalogue entry is registered twice", function=signature.function)
    _BY_FUNCTION[signature.function] = signature
    _BY_NAME.setdefault(signature.name, []).append(signature)


def entry(
    name: str,
    params: Sequence[Param],
    result: Result,
    make: Maker,
    *,
    strict: bool = True,
    variadic: bool = False,
    fallback: bool = False,
    alias: tuple[Kind, ...] | None = None,
    columns: Sequence[tuple[str, DataType | None]] = (),
) -> None:
    """Registers one signature; see `Signature`."""
    register(Signature(name, tuple(params), result, make, strict, variadic, fallback, alias, tuple(columns)))


def refused(name: str, *params: Param) -> None:
    """Registers a signature that Postgres has and the engine does not compute."""
    register(Signature(name, params, Kind.OTHER, None))


def named(name: str) -> Sequence[Signature]:
    """The overloads of `name`, in the order they were registered."""
    return _BY_NAME.get(name, ())


def by_function(function: str) -> Signature:
    """The entry of a resolved name. Raises KeyError."""
    return _BY_FUNCTION[function]


def every() -> tuple[Signature, ...]:
    """All entries, in the order of registration."""
    return tuple(_BY_FUNCTION.values())
