"""The text of a Postgres LSN, a place in the write-ahead log. Everywhere else it is a number.

Sinks, the commands and what speaks with a source's database call it.
"""

from __future__ import annotations


def lsn_text(lsn: int | None) -> str | None:
    """An LSN as pg_lsn spells it; None where there is none (None, or negative).

    >>> lsn_text(36496600), lsn_text(-1)
    ('0/22CE4D8', None)
    """
    return None if lsn is None or lsn < 0 else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str | None) -> int:
    """The inverse of `lsn_text`. Raises ValueError.

    >>> lsn_number("1/10")
    4294967312
    """
    if text is None:
        return -1
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"no LSN: {text}")
    return int(high, 16) << 32 | int(low, 16)
