"""From message bytes to payloads, with the Connect schema before a payload parsed once and then known by its bytes.

A schema-carrying message is `{"schema":S,"payload":P}`, and S is the same bytes in every message of a table until the
table changes. `Shapes` knows each S by the prefix that ends where P begins, so that only P is parsed. Called by the
envelope decoder; one `Shapes` for the values and one for the keys of a format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from headrace.connectors.formats.table_specs import CannotDecode

_HEAD: Final = b'{"schema":'
_MIDDLE: Final = b',"payload":'
_MOST_SHAPES: Final = 4096


@dataclass(frozen=True, eq=False)
class Shape:
    """One Connect schema, compared by identity. `fields`: of the struct, in order, by name."""

    fields: Mapping[str, Mapping[str, Any]]

    def row_fields(self) -> Mapping[str, Mapping[str, Any]] | None:
        """The columns of an envelope's row images, or None where this is no envelope."""
        row = self.fields.get("after") or self.fields.get("before")
        return None if row is None or "op" not in self.fields else _by_name(row)


def _by_name(struct: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(f.get("field")): f for f in struct.get("fields") or ()}


class Shapes:
    """The shapes seen so far, by prefix. Only its owner's `decode` writes to it."""

    def __init__(self) -> None:
        self._known: dict[bytes, Shape] = {}
        self._last: tuple[bytes, Shape] | None = None

    def payloads(self, values: Sequence[bytes]) -> tuple[list[Any], list[Shape | None] | None]:
        """The payload of each message, and the shape of each, or None where the first carries no schema.

        A run that mixes both ways comes from no one converter: its payloads fail later and it is taken one by one.

        Raises JSONDecodeError, CannotDecode for bytes that are not what a JSON converter writes.
        """
        loads = orjson.loads
        if not values or not values[0].startswith(_HEAD):
            return [loads(v) for v in values], None
        docs: list[Any] = []
        shapes: list[Shape | None] = []
        for value in values:
            shape, doc = self.split(value)
            docs.append(doc)
            shapes.append(shape)
        return docs, shapes

    def bare(self, values: Sequence[bytes]) -> tuple[Shape | None, Sequence[bytes]] | None:
        """The shape and the payloads as bytes, where all messages are of one known shape; else None."""
        if not values[0].startswith(_HEAD):
            return None, values
        self.shape(values[0])
        if self._last is None or not all(v.startswith(self._last[0]) and v.endswith(b"}") for v in values):
            return None
        prefix, shape = self._last
        return shape, [v[len(prefix) : -1] for v in values]

    def split(self, value: bytes) -> tuple[Shape | None, Any]:
        """(shape, payload) of one message; (None, message) where it carries no schema."""
        last = self._last
        if last is not None and value.startswith(last[0]) and value.endswith(b"}"):
            return last[1], orjson.loads(value[len(last[0]) : -1])
        if not value.startswith(_HEAD):
            return None, orjson.loads(value)
        for prefix, shape in self._known.items():
            if value.startswith(prefix) and value.endswith(b"}"):
                self._last = (prefix, shape)
                return shape, orjson.loads(value[len(prefix) : -1])
        return self._learn(value)

    def payload(self, value: bytes) -> Any:
        """The payload of one message alone."""
        return self.split(value)[1] if value.startswith(_HEAD) else orjson.loads(value)

    def shape(self, value: bytes) -> Shape | None:
        """The shape of one message alone; its payload is not parsed where the shape is known."""
        last = self._last
        if last is not None and value.startswith(last[0]):
            return last[1]
        return self.split(value)[0]

    def _learn(self, value: bytes) -> tuple[Shape | None, Any]:
        whole = orjson.loads(value)
        if set(whole) != {"schema", "payload"}:
            return None, whole
        if whole["schema"] is None:
            return None, whole["payload"]
        if not isinstance(whole["schema"], dict):
            raise CannotDecode("a schema that is not a Connect schema")
        shape = Shape(_by_name(whole["schema"]))
        prefix = _prefix(value)
        if prefix is not None:
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            self._known[prefix] = shape
            self._last = (prefix, shape)
        return shape, whole["payload"]


def _prefix(value: bytes) -> bytes | None:
    """The bytes before the payload: the first place where what went before is one whole JSON value."""
    at = value.find(_MIDDLE)
    while at >= 0:
        try:
            orjson.loads(value[len(_HEAD) : at])
        except orjson.JSONDecodeError:
            at = value.find(_MIDDLE, at + 1)
        else:
            return value[: at + len(_MIDDLE)]
    return None
