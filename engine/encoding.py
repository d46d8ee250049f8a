"""Canonical texts of values, for fingerprints that outlive a program: no name of a class, field or module is part of them.

Always: a class stands by a fixed tag, its fields by their values in their declared order; different values of one class
have different texts. A field that is added at the end with a default changes no text of a value that keeps the default:
so a default never changes its meaning. Called by `fingerprint_of` of the dataflow and by the digests of plans.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

from headrace.engine.errors import InvariantBroken


class Encoder:
    """Texts of values of the classes in `tags`, of numbers, texts, bytes, enums (by value) and sequences of these.

    `digested`: instances of this class stand inside of others by their attribute `digest`.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     label: str = ""
    >>> Encoder({Point: "point"}).encode([Point(1), Point(2, "b"), None, True])
    '[point(1),point(2,"b"),null,true]'
    """

    def __init__(self, tags: Mapping[type, str], digested: type | None = None) -> None:
        if len(set(tags.values())) < len(tags):
            raise InvariantBroken("two classes have one tag", tags=sorted(tags.values()))
        self.tags = dict(tags)
        self._digested = digested
        self._fields: dict[type, tuple[tuple[str, str | None], ...]] = {}
        """Of each class its fields, each with the text of its default, if it has one."""

    def add(self, kind: type, tag: str) -> None:
        """Give a class its tag. Raises InvariantBroken where another class has it."""
        if tag in self.tags.values():
            raise InvariantBroken("two classes have one tag", tag=tag, type=kind.__name__)
        self.tags[kind] = tag

    def encode(self, value: object) -> str:
        """The text of a value. Raises InvariantBroken for one of a class without a tag."""
        kind = type(value)
        if kind is str:
            return encode_basestring_ascii(str(value))
        if value is None or kind is bool:
            return json.dumps(value)
        if kind is int:
            return str(value)
        if isinstance(value, float):
            return f"f{float(value)!r}"
        if isinstance(value, bytes):
            return f"x{value.hex()}"
        if kind is tuple or kind is list:
            return f"[{','.join(map(self.encode, value))}]"  # type: ignore[call-overload]
        if isinstance(value, enum.Enum):
            return self.encode(value.value)
        if self._digested is not None and isinstance(value, self._digested):
            return f"#{value.digest}"  # type: ignore[attr-defined]
        return self.encode_fields(value)

    def encode_fields(self, value: object) -> str:
        """The tag and fields of a value, also where others would hold it by its digest."""
        kind = type(value)
        tag = self.tags.get(kind)
        if tag is None:
            raise InvariantBroken(
                "a value without a tag is part of a fingerprint", type=kind.__name__, hint="give its class a tag"
            )
        if kind not in self._fields:
            found = _fields_of(kind)
            self._fields[kind] = tuple((n, None if d is _NONE else self.encode(d)) for n, d in found)
        known = self._fields[kind]
        texts = [self.encode(getattr(value, name)) for name, _ in known]
        while texts and texts[-1] == known[len(texts) - 1][1]:
            texts.pop()
        return f"{tag}({','.join(texts)})"


_NONE = object()
"""The default of a field that has none."""


def _fields_of(kind: type) -> tuple[tuple[str, Any], ...]:
    """Names and defaults of the fields that tell values apart, of a dataclass or a named tuple."""
    if dataclasses.is_dataclass(kind):
        found = ((f.name, f.default) for f in dataclasses.fields(kind) if f.compare)
        return tuple((name, _NONE if default is dataclasses.MISSING else default) for name, default in found)
    defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    return tuple((name, defaults.get(name, _NONE)) for name in kind._fields)  # type: ignore[attr-defined]
