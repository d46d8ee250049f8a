"""Projections and filters of a few rows in one call of a kernel.

Always: what it gives is what evaluating the expressions one by one gives, or nothing: then that is what is done. A program is
made when the plan is built; nothing is compiled for it. Called by `linear` and by the dataflow's nodes without state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import Assembly, Picked
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import row_program
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.operators.expressions.core.program_steps import Steps, Unknown, width_of

FEW = 256
"""Below so many updates one call that does it all costs less than a call for each part of each expression."""

_NO_STEPS = np.empty((0, 3), np.int64)


@dataclass(frozen=True, eq=False)
class Program:
    """What a kernel does with rows. `constants`: the row of them; `outs`: (register, width, 0) of each column of a projection;
    `predicate`: the register of a filter that tells which rows stay; `made`: how rows are picked from what the kernel gives.
    """

    steps: Int64s
    constants: Exported | None
    outs: Int64s
    predicate: int
    made: Assembly

    @property
    def structs(self) -> int:
        """The address of the constants."""
        return 0 if self.constants is None else self.constants.address


def projection(lanes: Sequence[pa.DataType], exprs: Sequence[Expr], schema: pa.Schema) -> Program | None:
    """The program of a projection of rows of these lanes; None where it says nothing."""
    steps = Steps(lanes)
    try:
        outs = [(steps.of(e), width_of(e.type.arrow), 0) for e in exprs]
    except Unknown:
        return None
    if not outs or [e.type.arrow for e in exprs] != schema.types:
        return None
    made = Assembly.of(schema, range(len(schema)))
    return Program(steps.table(), _exported(steps), np.array(outs, np.int64), -1, made)


def condition(schema: pa.Schema, predicate: Expr) -> Program | None:
    """The program of a filter of rows of `schema`; None where it says nothing."""
    steps = Steps(schema.types)
    try:
        register = steps.of(predicate)
    except Unknown:
        return None
    if not len(schema):
        return None
    return Program(steps.table(), _exported(steps), _NO_STEPS, register, Assembly.of(schema, range(len(schema))))


def _exported(steps: Steps) -> Exported | None:
    constants = steps.constants()
    return None if constants is None else Exported(constants)


def project_few(updates: Updates, program: Program | None, *, paired: bool) -> Delta | None:
    """The rows projected; None where one call cannot say it.

    `paired`: a row that takes the place of an equal one cancels it.
    """
    if program is None or not 0 < len(updates) < FEW:
        return None
    found = row_program.project_rows(
        (updates.struct.address, program.structs),
        program.steps,
        program.outs,
        updates.times,
        updates.diffs,
        paired,
    )
    return None if found[5] == row_program.LONG else _delta(program, found)


def keep_few(updates: Updates, program: Program | None) -> Delta | None:
    """The rows filtered; None where one call cannot say it."""
    if program is None or not 0 < len(updates) < FEW:
        return None
    found = row_program.keep_rows(
        (updates.struct.address, program.structs),
        program.steps,
        program.made.steps,
        updates.times,
        updates.diffs,
        program.predicate,
    )
    if found[5] == row_program.ALL:
        return Delta(updates, None)
    return None if found[5] == row_program.LONG else _delta(program, found)


def _delta(program: Program, found: tuple[Int64s, ...]) -> Delta:
    facts = found[4]
    size = facts.shape[1]
    if not size:
        return QUIET
    return Delta(Updates(Picked(program.made, size, found[3], found[:4]), facts[0], facts[1]), None)
