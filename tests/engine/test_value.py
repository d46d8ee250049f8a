"""Values that remember their hash and spelling: what a copy in another process takes along."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from headrace.engine.operators.expressions.core.ir import Call, ColumnRef
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema

VALUE = (
    Schema((Column("x", BIGINT),)),
    Call("=(bigint,bigint)", (ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)), BOOLEAN),
)


def test_a_copy_in_another_process_is_found_there() -> None:
    # Texts hash otherwise there: a hash that came along would be wrong.
    before = hash(VALUE), repr(VALUE)
    assert before == (hash(VALUE), repr(VALUE))
    code = "import pickle, sys; from tests.engine.test_value import VALUE; assert pickle.load(sys.stdin.buffer) in {VALUE: 1}"
    seeds = {"PYTHONHASHSEED": "7", "PYTHONPATH": os.getcwd()}
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(VALUE), env={**os.environ, **seeds}, check=True)


def test_what_is_remembered_is_not_compared() -> None:
    one, other = Column("x", BIGINT), Column("x", BIGINT)
    hash(one)
    assert one == other
    assert hash(other) == hash(one)
    assert str(one) == str(other)
