"""Functions by which the binder sorts types that their lane does not: a value's key, and a value behind its key.

Always: no SQL can name them; NULL stays NULL. Registered in the catalogue at import.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.expressions.core import fallback, text_io, text_output
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.core.order_keys import key_of
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()


def _keyed(*, with_image: bool) -> Maker:
    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        key = key_of(params[0])
        if key is None:
            raise InvariantBroken("a type without an order is sorted", type=params[0])

        def one(image: str) -> str:
            return f"{key(image)}\0{image}" if with_image else key(image)

        return lambda value: fallback.map_values(one, STRING, [text_output.image_of(value, params[0])])

    return make


def _unkeyed(_params: tuple[DataType, ...], result: DataType) -> Kernel:
    def kernel(value: Values) -> Outcome:
        texts = fallback.map_values(lambda text: text.rpartition("\0")[2], STRING, [value])[0]
        return text_io.read_text(texts, result)

    return kernel


entry("$key", (None,), Kind.TEXT, _keyed(with_image=False), fallback=True)
entry("$behind key", (None,), Kind.TEXT, _keyed(with_image=True), fallback=True)
entry("$of key", (Kind.TEXT,), Kind.OTHER, _unkeyed, fallback=True)
