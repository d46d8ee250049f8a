"""The SQL/JSON path language evaluated over one jsonb, as Postgres does it.

Always: lax mode unwraps arrays for what is not theirs, wraps what is no array, and passes over what is not there; strict
mode fails. A predicate is true, false or unknown (None); an error inside one makes it unknown. Called by the entries of
`jsonpath_functions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.json.json_text import Number, loads
from headrace.engine.operators.expressions.json.jsonpath_parser import Node, Path, parse
from headrace.engine.operators.expressions.numeric import decimal_math

Items = list[Any]
SILENT = "the items of a path before an error are not supported"
_ARITHMETIC = {
    "+": decimal_math.add, "-": decimal_math.subtract, "*": decimal_math.multiply, "/": decimal_math.divide, "%":
    decimal_math.remainder, }  # fmt: skip
_BOUNDS = {"integer": 1 << 31, "bigint": 1 << 63}


class Unbound(RowError):
    """A variable that was not given: neither silence nor a predicate covers it."""


def query(text: str, path: str, variables: str = "{}", silent: bool = False) -> Items:
    """The items that a path gives. Raises RowError; in `silent` one that says that it is not silent."""
    run, root = _Run.of(text, path, variables)
    try:
        return run.items(root, run.root)
    except Unbound:
        raise
    except RowError as error:
        raise RowError(SILENT) if silent else error from None


def exists(text: str, path: str, variables: str = "{}") -> bool:
    """Whether a path gives anything. Raises RowError."""
    run, root = _Run.of(text, path, variables)
    return run.exists(root, run.root)


class _Run:
    """One evaluation. `last`: the last places of the arrays around."""

    def __init__(self, path: Path, root: Any, variables: dict[str, Any]) -> None:
        self.lax = not path.strict
        self.root = root
        self.variables = variables
        self.last: list[int] = []
        self.current: list[Any] = [root]

    @classmethod
    def of(cls, text: str, path: str, variables: str) -> tuple[_Run, Node]:
        """(the evaluation of a path over a jsonb, the path's root)."""
        given = loads(variables)
        if not isinstance(given, dict):
            raise RowError('"vars" argument is not an object')
        parsed = parse(path)
        return cls(parsed, loads(text), given), parsed.root

    def items(self, node: Node, value: Any) -> Items:
        """What a node gives of the current value."""
        kind, parts = node.kind, node.parts
        if kind == "root":
            return [self.root]
        if kind == "current":
            return [self.current[-1]]
        if kind == "constant":
            return [parts[0]]
        if kind == "variable":
            if parts[0] not in self.variables:
                raise Unbound(f'could not find jsonpath variable "{parts[0]}"')
            return [self.variables[parts[0]]]
        if kind == "last":
            if not self.last:
                raise RowError("LAST is allowed only in array subscripts")
            return [Number(str(self.last[-1]))]
        if kind == "access":
            found = self.items(parts[0], value)
            for step in parts[1]:
                found = [i for item in found for i in self.stepped(step, item, self.lax)]
            return found
        if kind in ("arithmetic", "sign"):
            return self.computed(node, value)
        return [self.truth(node, value)]

    def unwrapped(self, node: Node, value: Any) -> Items:
        """The items, arrays among them replaced by their elements in lax mode."""
        found = self.items(node, value)
        if not self.lax:
            return found
        return [e for item in found for e in (item if isinstance(item, list) else [item])]

    def exists(self, node: Node, value: Any) -> bool:
        """Whether a node gives anything: in lax mode what follows the first item is not looked at."""
        if self.lax and node.kind == "access":
            return self._reaches(self.items(node.parts[0], value), node.parts[1])
        if self.lax and node.kind == "sign":
            return any(isinstance(i, Number) for i in self.unwrapped(node.parts[1], value))
        return bool(self.items(node, value))

    def _reaches(self, items: Iterable[Any], steps: Sequence[Node]) -> bool:
        return any(not steps or self._reaches(self.stepped(steps[0], i, True), steps[1:]) for i in items)

    def stepped(self, step: Node, item: Any, unwrap: bool) -> Iterable[Any]:
        """One step of an accessor from one item; `unwrap`: an array where none is asked for stands for its elements."""
        kind = step.kind
        if kind == "levels":
            return list(self.below(item, 0, *step.parts))
        if kind == "elements":
            if isinstance(item, list):
                return list(item)
            return self.otherwise(item, "jsonpath wildcard array accessor can only be applied to an array")
        if kind == "places":
            return self.placed(step, item)
        if kind == "method" and step.parts[0] in ("type", "size"):
            return self.measured(step.parts[0], item)
        if unwrap and isinstance(item, list):
            return (i for element in item for i in self.stepped(step, element, False))
        if kind == "key":
            if isinstance(item, dict):
                if step.parts[0] in item:
                    return [item[step.parts[0]]]
                return self.missing(f'JSON object does not contain key "{step.parts[0]}"')
            return self.missing("jsonpath member accessor can only be applied to an object")
        if kind == "members":
            if isinstance(item, dict):
                keys = sorted(item, key=lambda k: (len(k.encode()), k.encode()))
                return [item[k] for k in keys]
            return self.missing("jsonpath wildcard member accessor can only be applied to an object")
        if kind == "method":
            return [_METHODS[step.parts[0]](step.parts[0], item)]
        self.current.append(item)
        try:
            return [item] if self.truth(step.parts[0], item) is True else []
        finally:
            self.current.pop()

    def missing(self, reason: str) -> Items:
        if self.lax:
            return []
        raise RowError(reason)

    def otherwise(self, item: Any, reason: str) -> Items:
        if self.lax:
            return [item]
        raise RowError(reason)

    def below(self, item: Any, level: int, first: int, last: int | None) -> Iterator[Any]:
        """The item and what is inside it, at the levels asked for; -1: what has nothing inside."""
        inner = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else None
        if isinstance(item, dict):
            inner = [item[k] for k in sorted(item, key=lambda k: (len(k.encode()), k.encode()))]
        if (first >= 0 and level >= first and (last is None or level <= last)) or (first < 0 and inner is None):
            yield item
        if inner is not None and (last is None or level < last):
            for each in inner:
                yield from self.below(each, level + 1, first, last)

    def placed(self, step: Node, item: Any) -> Items:
        if not isinstance(item, list):
            if not self.lax:
                raise RowError("jsonpath array accessor can only be applied to an array")
            item = [item]
        found: Items = []
        self.last.append(len(item) - 1)
        try:
            for low, high in step.parts:
                first = self.place(low)
                end = first if high is None else self.place(high)
                if not self.lax and not 0 <= first <= end < len(item):
                    raise RowError("jsonpath array subscript is out of bounds")
                found += item[max(first, 0) : end + 1] if end >= 0 else []
        finally:
            self.last.pop()
        return found

    def place(self, node: Node) -> int:
        found = self.items(node, self.current[-1])
        if len(found) != 1 or not isinstance(found[0], Number):
            raise RowError("jsonpath array subscript is not a single numeric value")
        image = decimal_math.parse(found[0])
        if image in decimal_math.SPECIAL or abs(int(image.partition(".")[0])) >= 1 << 31:
            raise RowError("jsonpath array subscript is out of integer range")
        return int(image.partition(".")[0])

    def measured(self, method: str, item: Any) -> Items:
        if method == "type":
            return [_kind(item)]
        if isinstance(item, list):
            return [Number(str(len(item)))]
        self.otherwise(item, "jsonpath item method .size() can only be applied to an array")
        return [Number("1")]

    def computed(self, node: Node, value: Any) -> Items:
        sign = node.parts[0]
        if node.kind == "sign":
            found = self.unwrapped(node.parts[1], value)
            if not all(isinstance(i, Number) for i in found):
                raise RowError(f"operand of unary jsonpath operator {sign} is not a numeric value")
            return [Number(decimal_math.negate(decimal_math.parse(i))) if sign == "-" else i for i in found]
        sides: list[str] = []
        for side, operand in zip(("left", "right"), node.parts[1:], strict=True):
            found = self.unwrapped(operand, value)
            if len(found) != 1 or not isinstance(found[0], Number):
                raise RowError(f"{side} operand of jsonpath operator {sign} is not a single numeric value")
            sides.append(decimal_math.parse(found[0]))
        return [Number(_ARITHMETIC[sign](*sides))]

    def truth(self, node: Node, value: Any) -> bool | None:
        """A predicate: true, false or unknown."""
        kind, parts = node.kind, node.parts
        if kind in ("and", "or"):
            decides = kind == "or"
            left = self.truth(parts[0], value)
            if left is decides:
                return decides
            right = self.truth(parts[1], value)
            return right if right is decides or left is not None else None
        if kind == "not":
            found = self.truth(parts[0], value)
            return None if found is None else not found
        if kind == "unknown":
            return self.truth(parts[0], value) is None
        try:
            if kind == "exists":
                return self.exists(parts[0], value)
            if kind == "compare":
                sign, one, other = parts
                sides = self.unwrapped(one, value), self.unwrapped(other, value)
                return self.any_of(*sides, lambda a, b: _compared(sign, a, b))
            if kind == "starts":
                heads = self.items(parts[1], value)
                return self.any_of(self.unwrapped(parts[0], value), heads, _starts)
            if kind == "regex":
                pattern = _pattern(parts[1], parts[2])
                return self.any_of(self.unwrapped(parts[0], value), [None], lambda a, _: _matches(pattern, a))
        except Unbound:
            raise
        except RowError:
            return None
        found_items = self.items(node, value)
        if len(found_items) == 1 and isinstance(found_items[0], bool):
            return found_items[0]
        return None

    def any_of(self, left: Items, right: Items, test: Callable[[Any, Any], bool | None]) -> bool | None:
        """Whether some pair passes; in strict mode an unknown one decides first."""
        found = unsure = False
        for one in left:
            for other in right:
                passed = test(one, other)
                if passed is None:
                    if not self.lax:
                        return None
                    unsure = True
                elif passed:
                    if self.lax:
                        return True
                    found = True
        return True if found else None if unsure else False


def _kind(item: Any) -> str:
    if isinstance(item, Number):
        return "number"
    kinds: dict[type, str] = {dict: "object", list: "array", bool: "boolean", str: "string"}
    return kinds.get(type(item), "null")


def _compared(sign: str, one: Any, other: Any) -> bool | None:
    kinds = _kind(one), _kind(other)
    if kinds[0] != kinds[1]:
        return sign == "<>" if "null" in kinds else None
    if kinds[0] in ("object", "array"):
        return None
    keys: list[Any] = [one, other]
    if kinds[0] == "number":
        keys = [fallback.order(decimal_math.parse(v)) for v in keys]
    elif kinds[0] == "null":
        keys = [0, 0]
    names = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
    return fallback.COMPARE[names[sign]](*keys)


def _text(item: Any) -> bool:
    return isinstance(item, str) and not isinstance(item, Number)


def _starts(one: Any, head: Any) -> bool | None:
    return one.startswith(head) if _text(one) and _text(head) else None


def _pattern(pattern: str, flags: str) -> re.Pattern[str]:
    options = re.IGNORECASE if "i" in flags else re.NOFLAG
    options |= re.DOTALL if "s" in flags else re.NOFLAG
    plain = re.escape(pattern) if "q" in flags else re.sub(r"\$$", r"\\Z", pattern)
    try:
        return re.compile(plain, options)
    except re.error as error:
        raise RowError(f"invalid regular expression: {error}") from None


def _matches(pattern: re.Pattern[str], item: Any) -> bool | None:
    return pattern.search(item) is not None if _text(item) else None


def _number(method: str, item: Any) -> str:
    if not isinstance(item, Number):
        raise RowError(f"jsonpath item method .{method}() can only be applied to a numeric value")
    return decimal_math.parse(item)


def _rounded(method: str, item: Any) -> Number:
    image = _number(method, item)
    if method == "abs":
        return Number(image.lstrip("-"))
    coefficient, scale = decimal_math.split(image)
    unit = 10**scale
    return Number(str(coefficient // unit if method == "floor" else -(-coefficient // unit)))


def _converted(method: str, item: Any) -> Any:
    """A string or number as a number of the method's type."""
    names = {"double": "double precision", "number": "numeric"}
    if not isinstance(item, str):
        raise RowError(f"jsonpath item method .{method}() can only be applied to a string or numeric value")
    fault = RowError(
        f'argument "{item}" of jsonpath item method .{method}() is invalid for type {names.get(method, method)}'
    )
    try:
        image = decimal_math.parse(item)
    except RowError:
        raise fault from None
    if image in decimal_math.SPECIAL:
        raise fault
    if method == "double":
        value = float(image)
        if math.isinf(value):
            raise fault
        return Number(decimal_math.parse(f"{value:.15g}"))
    if method == "number":
        return Number(image)
    if not isinstance(item, Number) and not re.fullmatch(r"\s*[+-]?\d+\s*", item):
        raise fault
    whole = decimal_math.rescale(decimal_math.split(image), 0)
    if not -_BOUNDS[method] <= whole < _BOUNDS[method]:
        raise fault
    return Number(str(whole))


def _truth_value(_method: str, item: Any) -> bool:
    words = {"t": True, "true": True, "y": True, "yes": True, "on": True, "1": True,
             "f": False, "false": False, "n": False, "no": False, "off": False, "0": False}  # fmt: skip
    if isinstance(item, bool):
        return item
    if isinstance(item, Number) and re.fullmatch(r"-?\d+", item):
        return int(item) != 0
    if not isinstance(item, str):
        reason = "can only be applied to a boolean, string, or numeric value"
        raise RowError(f"jsonpath item method .boolean() {reason}")
    if isinstance(item, Number) or item.strip().lower() not in words:
        raise RowError(f'argument "{item}" of jsonpath item method .boolean() is invalid for type boolean')
    return words[item.strip().lower()]


def _string(_method: str, item: Any) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    if not isinstance(item, str):
        reason = "can only be applied to a boolean, string, numeric, or datetime value"
        raise RowError(f"jsonpath item method .string() {reason}")
    return decimal_math.parse(item) if isinstance(item, Number) else item


_METHODS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("abs", "floor", "ceiling"), _rounded),
    **dict.fromkeys(("double", "number", "integer", "bigint"), _converted),
    "boolean": _truth_value,
    "string": _string,
}
