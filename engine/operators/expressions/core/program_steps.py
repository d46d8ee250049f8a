"""Expressions as the steps of a program that a kernel runs over a few rows: what is known of them, exactly, or nothing.

Always: where a program gives values at all they are those that `evaluate` gives, and no row fails; what is not known here
(most functions of texts, floats, dates, numerics of unknown scale) has no steps. Called by `row_programs`, when a plan is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels import row_program as kernel
from headrace.engine.kernels.gather import BITS, OFFSETS64
from headrace.engine.operators.expressions.core.casts import cast_kernel
from headrace.engine.operators.expressions.core.coercion import FLOATS, INTEGERS
from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.functions import by_function
from headrace.engine.operators.expressions.core.ir import Call, Case, Cast, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.schema import BOOLEAN, MAX_DIGITS, DataType, Kind

_WIDTHS = {2: 2, 4: 4, 8: 8, 16: 16}
_MOST_SCALED = 18
"""A decimal is brought to a scale that is larger by so many digits at the most: a power of ten is one word."""

_MOST = 256
"""A program has no more registers than this."""

_WORDS = (*INTEGERS, Kind.BOOLEAN, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
"""Kinds whose values are ordered as the integers that stand for them."""

_TRUE_OF = {
    "=": kernel.SAME,
    "<>": kernel.LESS | kernel.MORE,
    "<": kernel.LESS,
    "<=": kernel.LESS | kernel.SAME,
    ">": kernel.MORE,
    ">=": kernel.MORE | kernel.SAME,
}
_ARITHMETIC = {"+": kernel.ADD, "-": kernel.SUBTRACT, "*": kernel.MULTIPLY}
_QUOTIENTS = {"/": kernel.DIVIDE, "%": kernel.REMAINDER, "mod": kernel.REMAINDER}


class Unknown(Exception):
    """An expression has no steps."""


def width_of(lane: pa.DataType) -> int:
    """What a kernel calls the width of a column. Raises Unknown."""
    if pa.types.is_boolean(lane):
        return BITS
    if pa.types.is_large_string(lane) or pa.types.is_large_binary(lane):
        return OFFSETS64
    if (
        pa.types.is_string(lane)
        or pa.types.is_binary(lane)
        or pa.types.is_nested(lane)
        or lane.bit_width // 8 not in _WIDTHS
    ):
        raise Unknown
    return int(lane.bit_width // 8)


class Steps:
    """The steps of some expressions over rows of the lanes `lanes`; equal parts of them are one step."""

    def __init__(self, lanes: Sequence[pa.DataType]) -> None:
        self._lanes = lanes
        self._steps: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, ...], int] = {}
        self._constants: list[pa.Array] = []
        self._at: dict[Expr, int] = {}

    def of(self, expr: Expr) -> int:
        """The register that has an expression's values. Raises Unknown."""
        found = self._at.get(expr)
        if found is None:
            found = self._at[expr] = self._made(expr)
        return found

    def table(self) -> Int64s:
        """All steps, as the kernel reads them."""
        made = np.zeros((len(self._steps), 5), np.int64)
        for k, step in enumerate(self._steps):
            made[k, : len(step)] = step
        return made

    def constants(self) -> pa.RecordBatch | None:
        """The row of constants, if there are any."""
        names = [str(k) for k in range(len(self._constants))]
        return pa.RecordBatch.from_arrays(self._constants, names=names) if names else None

    def _step(self, *step: int) -> int:
        found = self._known.get(step)
        if found is None:
            if len(self._steps) >= _MOST:
                raise Unknown
            found = self._known[step] = len(self._steps)
            self._steps.append(step)
        return found

    def _made(self, expr: Expr) -> int:
        if isinstance(expr, ColumnRef):
            lane = self._lanes[expr.index]
            if lane != expr.type.arrow:
                raise Unknown
            return self._step(kernel.LOAD, 0, expr.index, width_of(lane))
        if _is_constant(expr):
            return self._constant(expr)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Case):
            found = self._same_lane(expr.otherwise, expr.type)
            for condition, value in reversed(expr.whens):
                found = self._step(kernel.CHOOSE, self.of(condition), self._same_lane(value, expr.type), found)
            return found
        if isinstance(expr, Coalesce):
            found, *rest = [self._same_lane(arg, expr.type) for arg in expr.args]
            for other in rest:
                found = self._step(kernel.COALESCE, found, other)
            return found
        assert isinstance(expr, Call)
        return self._call(expr)

    def _same_lane(self, expr: Expr, wanted: DataType) -> int:
        if expr.type.arrow != wanted.arrow:
            raise Unknown
        return self.of(expr)

    def _constant(self, expr: Expr) -> int:
        found = evaluate(expr, _ONE_ROW)
        if found.errors is not None or found.values.type != expr.type.arrow:
            raise Unknown
        self._constants.append(found.values)
        return self._step(kernel.LOAD, 1, len(self._constants) - 1, width_of(found.values.type))

    def _cast(self, expr: Cast) -> int:
        source, target = expr.arg.type, expr.type
        if cast_kernel(source, target) is None:
            return self._same_lane(expr.arg, target)
        if source.kind in (*INTEGERS, Kind.BOOLEAN) and target.kind in INTEGERS:
            return self._step(kernel.RANGE, self.of(expr.arg), _bits(target))
        whole = source.kind in INTEGERS or (source.kind is Kind.NUMERIC and source.fixed_scale)
        if not (target.kind is Kind.NUMERIC and target.fixed_scale and whole):
            raise Unknown
        own, scale = (source.scale or 0) if source.kind is Kind.NUMERIC else 0, target.scale or 0
        if scale < 0 or own < 0 or (target.precision is None and (own != scale or source.kind is Kind.NUMERIC)):
            raise Unknown
        found = self._scaled(self.of(expr.arg), scale - own)
        return found if target.precision is None else self._step(kernel.RANGE, found, 0, target.precision)

    def _call(self, expr: Call) -> int:
        if expr.function in ("and", "or"):
            return self._junction(kernel.AND if expr.function == "and" else kernel.OR, [self.of(a) for a in expr.args])
        signature = by_function(expr.function)
        made = _OF_NAME.get(signature.name)
        if made is None or signature.make is None:
            raise Unknown
        return made(self, signature.name, expr)

    def _junction(self, what: int, operands: Sequence[int]) -> int:
        found = operands[0]
        for other in operands[1:]:
            found = self._step(what, found, other)
        return found

    def _scaled(self, register: int, digits: int) -> int:
        """A decimal with so many digits more behind the point."""
        if not 0 <= digits <= _MOST_SCALED:
            raise Unknown
        return self._step(kernel.SCALE, register, digits) if digits else register

    def _arithmetic(self, name: str, expr: Call) -> int:
        kinds = [a.type.kind for a in expr.args]
        if len(kinds) == 1:
            return self._signed(name, expr)
        if name not in (*_ARITHMETIC, *_QUOTIENTS) or len(kinds) != 2:
            raise Unknown
        if kinds[0] in INTEGERS and kinds[0] is kinds[1] is expr.type.kind:
            what = _ARITHMETIC.get(name) or _QUOTIENTS[name]
            return self._step(what, self.of(expr.args[0]), self.of(expr.args[1]), _bits(expr.type))
        if name not in _ARITHMETIC or kinds != [Kind.NUMERIC] * 2 or not _are_fixed(*expr.args, expr):
            raise Unknown
        one, two = (self.of(a) for a in expr.args)
        if name != "*":
            one, two = self._at_one_scale(expr.args)
        return self._step(_ARITHMETIC[name], one, two, kernel.DECIMAL)

    def _at_one_scale(self, args: Sequence[Expr]) -> tuple[int, int]:
        scales = [a.type.scale or 0 for a in args]
        if min(scales) < 0:
            raise Unknown
        one, two = (self._scaled(self.of(a), max(scales) - s) for a, s in zip(args, scales, strict=True))
        return one, two

    def _signed(self, name: str, expr: Call) -> int:
        kind, register = expr.args[0].type.kind, self.of(expr.args[0])
        if not (kind in INTEGERS or (kind is Kind.NUMERIC and _are_fixed(expr.args[0], expr))):
            raise Unknown
        if name == "+":
            return register
        opposite = self._step(kernel.NEGATE, register, _bits(expr.type) if kind in INTEGERS else kernel.DECIMAL)
        if name == "-":
            return opposite
        if name not in ("abs", "@"):
            raise Unknown
        order = kernel.WORD_ORDER if kind in INTEGERS else kernel.DECIMAL_ORDER
        is_more = self._step(kernel.COMPARE, opposite, register, order, kernel.MORE)
        return self._step(kernel.CHOOSE, is_more, opposite, register)

    def _compared(self, left: Expr, right: Expr, outcomes: int) -> int:
        """Whether how the two are ordered is one of `outcomes`."""
        kinds = left.type.kind, right.type.kind
        if all(k in INTEGERS for k in kinds) or (kinds[0] is kinds[1] and kinds[0] in _WORDS):
            return self._step(kernel.COMPARE, self.of(left), self.of(right), kernel.WORD_ORDER, outcomes)
        if kinds == (Kind.NUMERIC, Kind.NUMERIC) and _are_fixed(left, right):
            one, two = self._at_one_scale((left, right))
            return self._step(kernel.COMPARE, one, two, kernel.DECIMAL_ORDER, outcomes)
        if kinds[0] is kinds[1] and kinds[0] in FLOATS:
            bits = left.type.arrow.bit_width
            one, two = (self._step(kernel.FLOAT_ORDER, self.of(a), bits) for a in (left, right))
            return self._step(kernel.COMPARE, one, two, kernel.WORD_ORDER, outcomes)
        if set(kinds) <= {Kind.TEXT, Kind.VARCHAR} or kinds == (Kind.BYTEA, Kind.BYTEA):
            return self._step(kernel.COMPARE, self.of(left), self.of(right), kernel.BYTES_ORDER, outcomes)
        raise Unknown

    def _comparison(self, name: str, expr: Call) -> int:
        return self._compared(expr.args[0], expr.args[1], _TRUE_OF[name])

    def _among(self, name: str, expr: Call) -> int:
        value, *items = expr.args
        found = self._junction(kernel.OR, [self._compared(value, item, kernel.SAME) for item in items])
        return found if name == "in" else self._step(kernel.NOT, found)

    def _null_if(self, _name: str, expr: Call) -> int:
        equal = self._compared(expr.args[0], expr.args[1], kernel.SAME)
        nothing = self.of(Literal(None, expr.type))
        return self._step(kernel.CHOOSE, equal, nothing, self._same_lane(expr.args[0], expr.type))

    def _distinct(self, name: str, expr: Call) -> int:
        equal = self._compared(expr.args[0], expr.args[1], kernel.SAME)
        one, two = (self._step(kernel.THERE, self.of(a)) for a in expr.args)
        # Where either is NULL they are alike if both are.
        alike = self._step(kernel.COMPARE, one, two, kernel.WORD_ORDER, kernel.SAME)
        found = self._step(kernel.COALESCE, equal, alike)
        return found if "not" in name else self._step(kernel.NOT, found)

    def _null_test(self, name: str, expr: Call) -> int:
        found = self._step(kernel.THERE, self.of(expr.args[0]))
        return found if "not" in name else self._step(kernel.NOT, found)

    def _truth_test(self, name: str, expr: Call) -> int:
        if "unknown" in name:
            return self._null_test(name, expr)
        value = self.of(expr.args[0])
        value = self._step(kernel.NOT, value) if name.endswith("false") else value
        holds = self._step(kernel.COALESCE, value, self.of(Literal(False, BOOLEAN)))
        return self._step(kernel.NOT, holds) if "not" in name else holds

    def _not(self, _name: str, expr: Call) -> int:
        return self._step(kernel.NOT, self.of(expr.args[0]))

    def _length(self, _name: str, expr: Call) -> int:
        if len(expr.args) != 1 or expr.args[0].type.kind is not Kind.TEXT:
            raise Unknown
        return self._step(kernel.LENGTH, self.of(expr.args[0]))


_Maker = Callable[[Steps, str, Call], int]
_OF_NAME: dict[str, _Maker] = {
    **dict.fromkeys((*_ARITHMETIC, *_QUOTIENTS, "abs", "@"), Steps._arithmetic),
    **dict.fromkeys(_TRUE_OF, Steps._comparison),
    **dict.fromkeys(("in", "not in"), Steps._among),
    **dict.fromkeys(("is distinct from", "is not distinct from"), Steps._distinct),
    **dict.fromkeys(("is null", "is not null"), Steps._null_test),
    **dict.fromkeys(
        (f"is {no}{word}" for word in ("true", "false", "unknown") for no in ("", "not ")), Steps._truth_test
    ),
    **dict.fromkeys(("length", "char_length"), Steps._length),
    "nullif": Steps._null_if,
    "not": Steps._not,
}
_ONE_ROW = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))


def _bits(datatype: DataType) -> int:
    return int(datatype.arrow.bit_width)


def _are_fixed(*exprs: Expr) -> bool:
    """True for decimals of known scale, of no more digits than a lane holds."""
    return all(e.type.fixed_scale and (e.type.scale or 0) <= MAX_DIGITS for e in exprs)


def _is_constant(expr: Expr) -> bool:
    if isinstance(expr, ColumnRef):
        return False
    if isinstance(expr, Cast):
        return _is_constant(expr.arg)
    if isinstance(expr, Case):
        return all(map(_is_constant, (*(part for when in expr.whens for part in when), expr.otherwise)))
    return isinstance(expr, Literal) or all(map(_is_constant, expr.args))
