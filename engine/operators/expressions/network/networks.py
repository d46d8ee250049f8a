"""Functions and operators of network and hardware addresses.

Always: over their text images, once for each value. Registered in the catalogue at import.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.network.network_text import address, full, host, read_inet, shown
from headrace.engine.operators.expressions.text.strings import per_value
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()
INET, CIDR, MACADDR, MACADDR8 = (DataType(Kind.OTHER, name=n) for n in ("inet", "cidr", "macaddr", "macaddr8"))
LONG = "abbrev of a network of IPv6 is not supported"


def _within(strict: bool) -> Callable[[str, str], bool]:
    def test(one: str, other: str) -> bool:
        a, b = address(one).network, address(other).network
        if a.version != b.version or not (a.prefixlen > b.prefixlen or (not strict and a.prefixlen == b.prefixlen)):
            return False
        return bool(a.subnet_of(b))  # type: ignore[arg-type]

    return test


def _overlap(one: str, other: str) -> bool:
    a, b = address(one).network, address(other).network
    return a.version == b.version and bool(a.overlaps(b))


def _masked(text: str, bits: int, *, network: bool) -> str:
    found = address(text)
    bits = found.max_prefixlen if bits == -1 else bits
    if not 0 <= bits <= found.max_prefixlen:
        raise RowError(f"invalid mask length: {bits}")
    made = ipaddress.ip_interface(f"{found.ip}/{bits}")
    return f"{made.network.network_address}/{bits}" if network else shown(made)


def _cidr(found: Any) -> str:
    return f"{host(ipaddress.ip_interface(found))}/{found.prefixlen}"


def _abbreviated(text: str) -> str:
    """A cidr without the octets that its mask leaves out."""
    found = address(text).network
    if found.version == 6:
        raise RowError(LONG)
    octets = str(found.network_address).split(".")[: max((found.prefixlen + 7) // 8, 1)]
    return f"{'.'.join(octets)}/{found.prefixlen}"


def _merged(one: str, other: str) -> str:
    a, b = address(one).network, address(other).network
    if a.version != b.version:
        raise RowError("cannot merge addresses from different families")
    bits = min(a.prefixlen, b.prefixlen)
    while (
        ipaddress.ip_interface(f"{a.network_address}/{bits}").network
        != ipaddress.ip_interface(f"{b.network_address}/{bits}").network
    ):
        bits -= 1
    return _cidr(ipaddress.ip_interface(f"{a.network_address}/{bits}").network)


def _moved(text: str, by: int) -> str:
    found = address(text)
    value = int(found.ip) + by
    if not 0 <= value < 1 << found.max_prefixlen:
        raise RowError("result is out of range")
    return shown(ipaddress.ip_interface(f"{type(found.ip)(value)}/{found.network.prefixlen}"))


def _distance(one: str, other: str) -> int:
    a, b = address(one), address(other)
    if a.version != b.version:
        raise RowError("cannot subtract inet values of different sizes")
    found = int(a.ip) - int(b.ip)
    if not -(2**63) <= found < 2**63:
        raise RowError("result is out of range")
    return found


def _bitwise(operation: Callable[[int, int], int], word: str) -> Callable[[str, str], str]:
    def made(one: str, other: str) -> str:
        a, b = address(one), address(other)
        if a.version != b.version:
            raise RowError(f"cannot {word} inet values of different sizes")
        bits = max(a.network.prefixlen, b.network.prefixlen)
        return shown(ipaddress.ip_interface(f"{type(a.ip)(operation(int(a.ip), int(b.ip)))}/{bits}"))

    return made


def _not(text: str) -> str:
    found = address(text)
    mask = (1 << found.max_prefixlen) - 1
    return shown(ipaddress.ip_interface(f"{type(found.ip)(int(found.ip) ^ mask)}/{found.network.prefixlen}"))


def _addresses() -> None:
    inet, cidr = (lambda _: INET), (lambda _: CIDR)
    flag, number, text = pa.bool_(), pa.int32(), STRING
    for sign, test in (
        ("<<", _within(True)), ("<<=", _within(False)), (">>", lambda a, b: _within(True)(b, a)),
        (">>=", lambda a, b: _within(False)(b, a)), ("&&", _overlap),
    ):  # fmt: skip
        entry(sign, (INET, INET), Kind.BOOLEAN, per_value(test, flag), fallback=True)
    one: list[tuple[str, Any, Any, pa.DataType]] = [
        ("host", lambda v: host(address(v)), Kind.TEXT, text),
        ("text", full, Kind.TEXT, text),
        ("abbrev", read_inet, Kind.TEXT, text),
        ("masklen", lambda v: address(v).network.prefixlen, Kind.INTEGER, number),
        ("family", lambda v: address(v).version, Kind.INTEGER, number),
        ("network", lambda v: _cidr(address(v).network), cidr, text),
        ("netmask", lambda v: str(address(v).netmask), inet, text),
        ("hostmask", lambda v: str(address(v).hostmask), inet, text),
        ("broadcast", _broadcast, inet, text),
    ]
    for name, function, result, lane in one:
        entry(name, (INET,), result, per_value(function, lane), fallback=True)
    entry("abbrev", (CIDR,), Kind.TEXT, per_value(_abbreviated, text), fallback=True)
    entry("set_masklen", (INET, Kind.INTEGER), inet, per_value(lambda v, b: _masked(v, b, network=False), text))
    entry("set_masklen", (CIDR, Kind.INTEGER), cidr, per_value(lambda v, b: _masked(v, b, network=True), text))
    same = per_value(lambda a, b: address(a).version == address(b).version, flag)
    entry("inet_same_family", (INET, INET), Kind.BOOLEAN, same, fallback=True)
    entry("inet_merge", (INET, INET), cidr, per_value(_merged, text), fallback=True)
    entry("+", (INET, Kind.BIGINT), inet, per_value(_moved, text), fallback=True)
    entry("+", (Kind.BIGINT, INET), inet, per_value(lambda n, v: _moved(v, n), text), fallback=True)
    # The least bigint has no opposite: it is its own.
    back = per_value(lambda v, n: _moved(v, -n if n > -(2**63) else n), text)
    entry("-", (INET, Kind.BIGINT), inet, back, fallback=True)
    entry("-", (INET, INET), Kind.BIGINT, per_value(_distance, pa.int64()), fallback=True)
    entry("~", (INET,), inet, per_value(_not, text), fallback=True)
    entry("&", (INET, INET), inet, per_value(_bitwise(lambda a, b: a & b, "AND"), text), fallback=True)
    entry("|", (INET, INET), inet, per_value(_bitwise(lambda a, b: a | b, "OR"), text), fallback=True)


def _broadcast(text: str) -> str:
    found = address(text)
    return shown(ipaddress.ip_interface(f"{found.network.broadcast_address}/{found.network.prefixlen}"))


def _register() -> None:
    _addresses()
    for kind in (MACADDR, MACADDR8):
        cut = per_value(lambda v: v[:8] + ":00" * (v.count(":") - 2), STRING)
        entry("trunc", (kind,), lambda params: params[0], cut, fallback=True)


_register()
