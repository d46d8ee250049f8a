"""Types of few functions that are known by their text: how network and hardware addresses, names and OIDs are
read and printed.

Always: each value has one image, and an order. Registered with the families at import; called by their functions.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

from headrace.engine.operators.expressions.core.conversions import conversion
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.text_types import Family, family
from headrace.engine.operators.expressions.numeric.decimal_math import invalid
from headrace.engine.schema import DataType, Kind

Address = ipaddress.IPv4Interface | ipaddress.IPv6Interface
_V4 = re.compile(r"(\d{1,3})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?(?:/(\d{1,2}))?", re.ASCII)


def address(text: str, what: str = "inet") -> Address:
    """An address with its mask. Raises RowError."""
    body, slash, bits = text.partition("/")
    if slash and not bits.isdigit():
        raise invalid(what, text)
    match = _V4.fullmatch(text)
    try:
        if match is None or "/" not in text or match[4] is not None:
            return ipaddress.ip_interface(text if slash else body)
        octets = [o for o in match.groups()[:4] if o is not None]
        return ipaddress.ip_interface(".".join(octets + ["0"] * (4 - len(octets))) + f"/{bits}")
    except ValueError:
        raise invalid(what, text) from None


def read_inet(text: str) -> str:
    """The image of an address. Raises RowError."""
    return shown(address(text))


def shown(found: Address) -> str:
    """An address's image: its mask is left out where it is that of all bits."""
    plain = host(found)
    return plain if found.network.prefixlen == found.max_prefixlen else f"{plain}/{found.network.prefixlen}"


def host(found: Address) -> str:
    """The address as Postgres prints it: an IPv6 one ends in dotted form where it holds an IPv4 one."""
    plain = str(found.ip)
    value = int(found.ip)
    if found.version == 6 and (value >> 32 == 0xFFFF or (value >> 32 == 0 and value > 0xFFFF)):
        return ("::ffff:" if value >> 32 else "::") + str(ipaddress.IPv4Address(value & 0xFFFFFFFF))
    return plain


def _read_cidr(text: str) -> str:
    match = _V4.fullmatch(text)
    if match is not None:
        octets = [o for o in match.groups()[:4] if o is not None]
        bits = match[5]
        if bits is None:
            first = int(octets[0])
            classful = 8 if first < 128 else 16 if first < 192 else 24 if first < 224 else 32 if first >= 240 else 4
            bits = str(max(classful if len(octets) < 4 else 32, 8 * len(octets)))
        text_full = ".".join(octets + ["0"] * (4 - len(octets))) + f"/{bits}"
        found = address(text_full, "cidr") if int(bits) <= 32 else address(text, "cidr")
    else:
        found = address(text, "cidr")
    if found.ip != found.network.network_address:
        raise RowError(f'invalid cidr value: "{text}"')
    return f"{host(found)}/{found.network.prefixlen}"


def _inet_order(image: str) -> str:
    """The network's bits, then how many they are, then all bits; a network before its parts."""
    found = address(image)
    bits = format(int(found.ip), f"0{found.max_prefixlen}b")
    return f"{found.version}{bits[: found.network.prefixlen]}!{bits}"


def _read_mac(octets: int) -> Callable[[str], str]:
    what = "macaddr" if octets == 6 else "macaddr8"
    grouped = re.compile(r"[0-9a-fA-F]{1,2}([:-])(?:[0-9a-fA-F]{1,2}\1)*[0-9a-fA-F]{1,2}")
    wide = re.compile(r"[0-9a-fA-F]{4}([.-])(?:[0-9a-fA-F]{4}\1)*[0-9a-fA-F]{4}|[0-9a-fA-F]{6}[:-][0-9a-fA-F]{6}|"
                      r"[0-9a-fA-F]{12}(?:[0-9a-fA-F]{4})?")  # fmt: skip

    def read(text: str) -> str:
        body = text.strip(" \t\n\r\v\f")
        if grouped.fullmatch(body):
            digits = "".join(part.rjust(2, "0") for part in re.split("[:-]", body))
        elif wide.fullmatch(body):
            digits = re.sub("[.:-]", "", body)
        else:
            raise invalid(what, text)
        if octets == 8 and len(digits) == 12:
            digits = digits[:6] + "fffe" + digits[6:]
        if len(digits) != 2 * octets:
            raise invalid(what, text)
        return ":".join(digits[i : i + 2] for i in range(0, len(digits), 2)).lower()

    return read


def _read_name(text: str) -> str:
    return text.encode()[:63].decode("utf-8", "ignore")


def _read_oid(text: str) -> str:
    body = text.strip(" \t\n\r\v\f")
    if not re.fullmatch(r"[+-]?\d+", body, re.ASCII):
        raise invalid("oid", text)
    value = int(body)
    if not -(2**31) <= value < 2**32:
        raise RowError(f'value "{text}" is out of range for type oid')
    return str(value % 2**32)


def _same(image: str) -> str:
    return image


def full(text: str) -> str:
    """An address with its mask, which its image leaves out where it is that of all bits."""
    return text if "/" in text else f"{text}/{address(text).max_prefixlen}"


def _network(image: str, _target: DataType) -> str:
    """The network that an address is in."""
    found = address(image).network
    return f"{found.network_address}/{found.prefixlen}"


def _wide_mac(image: str, _target: DataType) -> str:
    return f"{image[:8]}:ff:fe:{image[9:]}"


def _narrow_mac(image: str, _target: DataType) -> str:
    if image[9:14] != "ff:fe":
        raise RowError("macaddr8 data out of range to convert to macaddr")
    return image[:8] + image[14:]


def _number_of(image: str, _target: DataType) -> str:
    """An OID as an integer, whose sign its first bit is."""
    return str(int(image) - (1 << 32) if int(image) >> 31 else int(image))


def _oid_of(image: str, _target: DataType) -> str:
    return str(int(image) % (1 << 32))


def _oid_of_bigint(image: str, _target: DataType) -> str:
    if not 0 <= int(image) < 1 << 32:
        raise RowError("OID out of range")
    return image


def _conversions() -> None:
    oid, inet, cidr, mac, mac8 = (DataType(Kind.OTHER, name=n) for n in ("oid", "inet", "cidr", "macaddr", "macaddr8"))
    conversion(inet, cidr, "assignment", _network)
    conversion(cidr, inet, "implicit", lambda image, _: image)  # which an inet of one address shows without its length
    conversion(mac, mac8, "assignment", _wide_mac)
    conversion(mac8, mac, "assignment", _narrow_mac)
    for kind, one in ((Kind.SMALLINT, _oid_of), (Kind.INTEGER, _oid_of), (Kind.BIGINT, _oid_of_bigint)):
        conversion(DataType(kind), oid, "implicit", one)
    conversion(oid, DataType(Kind.INTEGER), "assignment", _number_of)
    conversion(oid, DataType(Kind.BIGINT), "assignment", lambda image, _: image)


def _register() -> None:
    _conversions()
    family("inet", Family(read_inet, _inet_order))
    family("cidr", Family(_read_cidr, _inet_order))
    for name, octets in (("macaddr", 6), ("macaddr8", 8)):
        family(name, Family(_read_mac(octets), _same))
    family("name", Family(_read_name, _same))
    family("oid", Family(_read_oid, lambda image: image.rjust(10, "0")))


_register()
