"""The values that stand for an unchanged TOASTed one, by column type.

Debezium writes its configured placeholder in whatever shape the column's encoding forces on it. A value equal to one
of these is never data. Made once a table and column; the row builder looks for them in every run.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Any, Final

from headrace.connectors.formats.encodings import element_type
from headrace.engine.schema import DataType, Kind

_PLAIN: Final = frozenset((Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR, Kind.JSON, Kind.JSONB, Kind.NUMERIC))


def unsent_values(kind: DataType, placeholder: str) -> tuple[Any, ...]:
    """Every JSON value by which an unchanged value of type `kind` may be announced; empty for types never TOASTed."""
    raw = bytes.fromhex(placeholder[4:]) if placeholder.startswith("hex:") else placeholder.encode()
    text = raw.decode("utf-8", "replace")
    if kind.kind in _PLAIN:
        return (text,)
    if kind.kind is Kind.BYTEA:
        return _binary(raw, text)
    if kind.kind is not Kind.OTHER:
        return ()
    element = element_type(kind)
    if element is not None:
        return (text, [text], *_array(element, raw, text))
    if (kind.name or "").lower() == "hstore":
        return (text, {text: text}, f'{{"{text}":"{text}"}}')
    return (text,)


def _binary(raw: bytes, text: str) -> tuple[str, ...]:
    return (base64.b64encode(raw).decode(), text, base64.urlsafe_b64encode(raw).decode(), raw.hex())


def _array(element: DataType, raw: bytes, text: str) -> tuple[Any, ...]:
    if element.kind is Kind.BYTEA:
        return tuple([one] for one in _binary(raw, text))
    if element.kind is Kind.UUID:
        digest = hashlib.md5(raw, usedforsecurity=False).digest()
        return ([str(uuid.UUID(bytes=digest, version=3))],)
    signed = [byte - 256 if byte > 127 else byte for byte in raw]
    return (signed,)
