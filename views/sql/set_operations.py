"""UNION, INTERSECT and EXCEPT bound, ALL or not: both sides brought to common types, NULLs being equal.

Always: the names are the first side's; what is not ALL has each row once; INTERSECT and EXCEPT count how often a row
stands on each side, in one reduce. Called by `select`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Expr, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, Column
from headrace.views.plan import Distinct, Filter, Plan, Project, Reduce, Repeat, Union, identity
from headrace.views.sql import coerce
from headrace.views.sql.coerce import UNKNOWN
from headrace.views.sql.parsing.parse import Source

NOTHING = Literal(0, BIGINT)


def set_operation(source: Source, query: exp.Expr, sides: Sequence[Plan], *, settle: bool) -> Plan:
    """The plan of `sides[0] <operation> sides[1]`. Raises ViewError."""
    word = type(query).__name__.upper()
    left, right = aligned(source, word, [query.this, query.expression], sides, settle=settle)
    every = not query.args.get("distinct")
    union = Union((left, right))
    if not (every and word == "UNION"):
        for position, column in enumerate(union.schema.columns):
            comparable(source, output_node(query, position), column, word)
    if word == "UNION":
        return union if every else Distinct(union)
    return counted(left, right, word, every=every)


def aligned(source: Source, word: str, nodes: Sequence[exp.Expr], sides: Sequence[Plan], *, settle: bool) -> list[Plan]:
    """The sides with columns of the same types, under the names of the first. Raises ViewError."""
    width = len(sides[0].schema.columns)
    for node, side in zip(nodes, sides, strict=True):
        if len(side.schema.columns) != width:
            reason = f"each {word} query must have the same number of columns"
            source.refuse(node, reason, f"this one has {len(side.schema.columns)}, the first {width}")
    names = sides[0].schema.names
    bound: list[list[Expr]] = [[] for _ in sides]
    for position in range(width):
        exprs = [_expr(side, position) for side in sides]
        try:
            if not settle and all(e.type == UNKNOWN for e in exprs):
                exprs = [coerce.settled(e) for e in exprs]
            else:
                exprs = list(coerce.unified(exprs, word)[0])
        except HeadraceError as error:
            node = output_node(nodes[-1], position)
            source.refuse(node, error.what, f"cast column {position + 1} of one side")
        for found, expr in zip(bound, exprs, strict=True):
            found.append(expr)
    return [_over(side, tuple(exprs), names) for side, exprs in zip(sides, bound, strict=True)]


def counted(left: Plan, right: Plan, word: str, *, every: bool) -> Plan:
    """INTERSECT or EXCEPT by the number of copies on each side."""
    own, names = identity(left.schema)
    width = len(own)
    marked = tuple(
        Project(side, (*identity(side.schema)[0], Literal(mark, BOOLEAN)), (*names, "left"))
        for side, mark in ((left, True), (right, False))
    )
    mark = ColumnRef(width, BOOLEAN)
    one, two = Aggregate("count", None, BIGINT, filter=mark), Aggregate("count", None, BIGINT, filter=_not(mark))
    counts = Reduce(Union(marked), tuple(range(width)), (one, two), (*names, "lefts", "rights"))
    lefts, rights = ColumnRef(width, BIGINT), ColumnRef(width + 1, BIGINT)
    own = identity(counts.schema, range(width))[0]
    if word == "INTERSECT":
        kept = Call("and", (_compared(">", lefts, NOTHING), _compared(">", rights, NOTHING)), BOOLEAN)
        times: Expr = Call("least(bigint,...)", (lefts, rights), BIGINT)
    else:
        kept = _compared(">", lefts, rights)
        times = Call("-(bigint,bigint)", (lefts, rights), BIGINT)
        if not every:
            kept = Call("and", (_compared(">", lefts, NOTHING), _compared("=", rights, NOTHING)), BOOLEAN)
    rows = Filter(counts, kept)
    return Repeat(Project(rows, (*own, times), (*names, "times"))) if every else Project(rows, own, names)


def _compared(word: str, one: Expr, two: Expr) -> Call:
    return Call(f"{word}(bigint,bigint)", (one, two), BOOLEAN)


def _not(condition: Expr) -> Call:
    return coerce.called("not", [condition])


def comparable(source: Source, node: exp.Expr, column: Column, what: str) -> None:
    """Refuses, at `node`, a column whose values cannot be told equal, as `what` (GROUP BY, UNION …) must."""
    try:
        coerce.check_comparable(column.type, what)
    except HeadraceError as error:
        source.refuse(node, error.what, error.hint)


def output_node(query: exp.Expr, position: int) -> exp.Expr:
    """The SELECT item that gives an output column, or the query where that cannot be told (a `*`)."""
    while not isinstance(query, exp.Select):
        if not isinstance(query.this, exp.Expr):
            return query
        query = query.this
    items = query.expressions
    if any(isinstance(i, exp.Star) or (isinstance(i, exp.Column) and isinstance(i.this, exp.Star)) for i in items):
        return query
    return items[position] if position < len(items) else query


def _expr(plan: Plan, position: int) -> Expr:
    """Output column `position`, as the literal itself where it is one without a type."""
    column = plan.schema.columns[position]
    if column.type == UNKNOWN and isinstance(plan, Project):
        return plan.exprs[position]
    return ColumnRef(position, column.type)


def _over(plan: Plan, exprs: tuple[Expr, ...], names: tuple[str, ...]) -> Plan:
    if all(isinstance(e, ColumnRef) for e in exprs) and names == tuple(c.name for c in plan.schema.columns):
        return plan
    if isinstance(plan, Project) and any(c.type == UNKNOWN for c in plan.schema.columns):
        # Literals without a type cannot stay below: read them as the common type in the projection that has them.
        below = tuple(exprs[i] if c.type == UNKNOWN else plan.exprs[i] for i, c in enumerate(plan.schema.columns))
        plan = replace(plan, exprs=below)
        exprs = tuple(ColumnRef(i, below[i].type) if e is below[i] else e for i, e in enumerate(exprs))
    return Project(plan, exprs, names)
