"""Values: frozen dataclasses that are hashed and spelled over and over while plans are made, and work that out once.

Always: what is remembered stands beside the fields, and so neither is compared nor copied nor sent to another process,
where texts have other hashes. Called by the modules that declare types, columns and expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, Generic, TypeVar, overload

C = TypeVar("C")
V = TypeVar("V")


class derived(Generic[V]):
    """What follows from a value's fields, worked out where it is first asked: `cached_property` without its lock.

    >>> class Pair:
    ...     @derived
    ...     def both(self) -> list[int]:
    ...         return [1, 2]
    >>> pair = Pair()
    >>> pair.both is pair.both
    True
    """

    def __init__(self, work_out: Callable[[Any], V]) -> None:
        self._work_out = work_out
        self._name = work_out.__name__
        self.__doc__ = work_out.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> derived[V]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> V: ...

    def __get__(self, instance: object | None, owner: type) -> V | derived[V]:
        """The value; from then on it stands among what the instance holds, where Python looks first."""
        if instance is None:
            return self
        found = instance.__dict__[self._name] = self._work_out(instance)
        return found


def remembered(work_out: Callable[[C], V]) -> Callable[[C], V]:
    """A function of one value that each value remembers: for what is defined above the value's own module.

    >>> class Pair:
    ...     pass
    >>> @remembered
    ... def parts(pair: Pair) -> list[int]:
    ...     return [1, 2]
    >>> pair = Pair()
    >>> parts(pair) is parts(pair)
    True
    """
    name = f"{work_out.__module__}.{work_out.__qualname__}"

    @wraps(work_out)
    def asked(value: C) -> V:
        known = value.__dict__
        if name not in known:
            known[name] = work_out(value)
        found: V = known[name]
        return found

    return asked


def hashed_once(cls: type[C]) -> type[C]:
    """The frozen dataclass, whose instances remember their hash.

    >>> from dataclasses import dataclass
    >>> @hashed_once
    ... @dataclass(frozen=True)
    ... class Pair:
    ...     left: object
    ...     right: object
    >>> hash(Pair(1, Pair(2, 3))) == hash(Pair(1, Pair(2, 3)))
    True
    """
    return _remembering(cls, "__hash__")


def spelled_once(cls: type[C]) -> type[C]:
    """The frozen dataclass, whose instances remember their `repr`."""
    return _remembering(cls, "__repr__")


def _remembering(cls: type[C], method: str) -> type[C]:
    work_out, name = getattr(cls, method), f"_{method.strip('_')}"

    def remembered(self: Any) -> Any:
        own = self.__dict__
        found = own.get(name)
        if found is None:
            found = own[name] = work_out(self)
        return found

    for its, said in ((method, remembered), ("__getstate__", _fields_alone)):
        setattr(cls, its, said)
    return cls


def _fields_alone(self: Any) -> dict[str, Any]:
    return {f.name: self.__dict__[f.name] for f in fields(self)}
