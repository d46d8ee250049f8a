"""Values: frozen dataclasses that are hashed and spelled over and over while plans are made, and work that out once.

Always: what is remembered stands beside the fields, and so neither is compared nor copied nor sent to another process,
where texts have other hashes. Called by the modules that declare types, columns and expressions.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

C = TypeVar("C")


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
