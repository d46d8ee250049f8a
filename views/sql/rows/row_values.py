"""Handlers of row values: ROW(…), lists in parentheses and whole rows of a table, compared, tested for NULL, and their fields.

Always: a row is its columns, side by side; ROW(…) is compared column by column as SQL says, NULLs unknown, and a table's
whole row as a value of its type is, NULLs being equal. Called by the handlers of operators; registered with the binder at
import.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Call, Expr, Literal
from headrace.engine.schema import BOOLEAN, TEXT, Column, array_of
from headrace.views.expressions import conjunction
from headrace.views.sql import coerce
from headrace.views.sql.arrays import MADE
from headrace.views.sql.binder import Binder, binds, unsupported
from headrace.views.sql.parsing.nodes import WholeRowColumn
from headrace.views.sql.parsing.parse import name_of, spelled_as
from headrace.views.sql.rows import composites
from headrace.views.sql.rows.row_comparison import ROW_WORDS, decided, ordered
from headrace.views.sql.subqueries.subquery_binder import row_compared

_WHOLE_NULL = "a whole row that may be missing, or all NULL, is not supported here"
_HINT = "write ROW(…) with its columns"


def cells(binder: Binder, node: exp.Expr) -> list[exp.Expr] | None:
    """The columns of a row value; None for anything else."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(node, exp.Tuple) or (isinstance(node, exp.Anonymous) and str(node.this).lower() == "row"):
        return [part for item in node.expressions for part in _spread(binder, item)]
    fields = composites.typed(binder, node)
    return whole(binder, node) if fields is None else _cast(binder, node, fields)


def _cast(binder: Binder, node: exp.Expr, fields: Sequence[Column]) -> list[exp.Expr]:
    """The fields of a value that is cast to a composite type. Raises ViewError."""
    known = composites.spelled(binder, node, fields)
    if known is not None:
        return known
    kind = spelled_as(node.args["to"]).lower()
    if composites.typed(binder, node.this) is not None:
        inner = spelled_as(node.this.unnest().args["to"]).lower()
        if inner != kind:
            binder.source.refuse(node, f"cannot cast type {inner} to {kind}")
        return cells(binder, node.this) or []
    parts = None if whole(binder, node.this) is not None else cells(binder, node.this)
    if parts is None:
        hint = "write ROW(…) with its fields, NULL or its text"
        binder.source.refuse(node, f"a value of type {kind} is not supported in expressions", hint)
    if len(parts) != len(fields):
        binder.source.refuse(node, f"cannot cast type record to {kind}", f"it has {len(fields)} fields")
    return composites.cast(node, parts, fields)


def names(binder: Binder, node: exp.Expr, columns: Sequence[exp.Expr]) -> list[str]:
    """What a row's type names its fields: a table's own names, whatever an alias calls them; f1, f2 … where nobody does."""
    fields = composites.typed(binder, node)
    if fields is not None:
        return [f.name for f in fields]
    if whole(binder, node) is None:
        return [f"f{i}" for i in range(1, len(columns) + 1)]
    relation = binder.scope.relation(table_of(node))
    return list(relation.fields) if relation is not None and relation.fields else [c.name for c in columns]


def type_of(binder: Binder, node: exp.Expr) -> str | None:
    """The name of a row's type, where it needs no schema; None for anything else."""
    if composites.typed(binder, node) is not None:
        schema, name = composites.named(node.unnest().args["to"]) or ("", "")
        return name if schema is None else None
    if whole(binder, node) is not None:
        relation = binder.scope.relation(table_of(node))
        return None if relation is None else relation.row or None
    return None if cells(binder, node) is None else "record"


def _is_value(binder: Binder, node: exp.Expr) -> bool:
    """Whether a row is a value of a type of its own: a table's whole row, or one that is cast to its type."""
    return whole(binder, node) is not None or composites.typed(binder, node) is not None


def bare(node: exp.Expr) -> exp.Expr:
    """`ROW(a, b)` as `(a, b)`, which means the same on the left of IN (SELECT …); any other node unchanged."""
    row = isinstance(node, exp.Anonymous) and str(node.this).lower() == "row"
    plain = row and not any(isinstance(part.this, exp.Star) for part in node.expressions)
    return exp.Tuple(expressions=[part.copy() for part in node.expressions]) if plain else node


def whole(binder: Binder, node: exp.Expr) -> list[exp.Expr] | None:
    """The columns of a table whose name, or name.*, stands where a value should; None for anything else."""
    node = node.unnest() if isinstance(node, exp.Paren) else node
    if not isinstance(node, exp.Column):
        return None
    table = node.args.get("table")
    if isinstance(node.this, exp.Star):
        return None if table is None else _columns(binder, name_of(table), table, WholeRowColumn)
    name = name_of(node.this)
    return None if table is not None or binder.scope.find(name) else _columns(binder, name, node.this, WholeRowColumn)


def table_of(node: exp.Expr) -> str:
    """The name, or alias, of the table whose whole row stands there as `t` or as `t.*`."""
    node = node.unnest()
    return name_of(node.args["table"] if isinstance(node.this, exp.Star) else node.this)


def _columns(binder: Binder, alias: str, at: exp.Expr, kind: type[exp.Column]) -> list[exp.Expr] | None:
    relation = binder.scope.relation(alias)
    if relation is None or not alias:
        return None
    made = [
        kind(this=exp.to_identifier(c.name, quoted=True), table=exp.to_identifier(alias, quoted=True))
        for c in relation.columns
    ]
    for column in made:
        column.this.meta.update(at.meta)
    return list(made)


def _spread(binder: Binder, item: exp.Expr) -> list[exp.Expr]:
    """One item of ROW(…), in which t.* is all of its columns."""
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star) and item.args.get("table") is not None:
        return _columns(binder, name_of(item.args["table"]), item.args["table"], exp.Column) or [item]
    return [item]


def compared(binder: Binder, node: exp.Expr, word: str) -> Expr:
    """A comparison whose left side is a row. Raises ViewError."""
    one, other = node.this, node.expression
    if any(_is_value(binder, side) for side in (one, other)):
        return _wholly(binder, node, word)
    if word in ("is distinct from", "is not distinct from"):
        return _distinct(_pairs(binder, one, other), negated="not" in word)
    if word not in ROW_WORDS:
        binder.source.refuse(node, f"rows can only be compared, not taken by {word}")
    left, query = cells(binder, one), other.unnest()
    if left is not None and isinstance(query, exp.Query):
        return row_compared(binder, node, left, query, word)
    return decided(word, _pairs(binder, one, other))


def _wholly(binder: Binder, node: exp.Expr, word: str) -> Expr:
    """A comparison with a table's whole row, or a row of a named type, as of two values of its type."""
    sides = (node.this, node.expression)
    wholes = any(whole(binder, side) is not None for side in sides)
    if word not in (*(ROW_WORDS[:2] if wholes else ROW_WORDS), "is distinct from", "is not distinct from"):
        binder.source.refuse(node, f"whole rows can only be compared for being equal, not by {word}", _HINT)
    for side in sides:
        _check_there(binder, side)
        if composites.is_missing(binder, side):
            binder.source.refuse(side, "NULL of a composite type in a comparison is not supported", _HINT)
    pairs = _pairs(binder, *sides)
    if not wholes:
        pairs = [[coerce.settled(a), coerce.settled(b)] for a, b in pairs]
        for at, (a, b) in enumerate(pairs, 1):
            if a.type.bare != b.type.bare:
                reason = f"cannot compare dissimilar column types {a.type.bare} and {b.type.bare} at record column {at}"
                binder.source.refuse(node, reason, "cast one of the rows to the type of the other")
    if word in ROW_WORDS[2:]:
        return ordered(word, pairs)
    return _distinct(pairs, negated=word in ("=", "is not distinct from"))


def _check_there(binder: Binder, side: exp.Expr) -> None:
    """Refuses a whole row of which no column says whether it is there."""
    columns = whole(binder, side)
    if columns is None:
        return
    relation = binder.scope.relation(table_of(side))
    if relation is None or all(c.nullable for c in relation.columns):
        binder.source.refuse(side, _WHOLE_NULL, _HINT)


def _distinct(pairs: Sequence[Sequence[Expr]], *, negated: bool) -> Expr:
    parts = [coerce.called("is not distinct from", pair) for pair in pairs]
    same = conjunction(parts)
    assert same is not None
    return same if negated else coerce.called("not", [same])


def _pairs(binder: Binder, one: exp.Expr, other: exp.Expr) -> list[list[Expr]]:
    """The columns of two rows, side by side."""
    query = next((side for side in (one, other) if isinstance(side.unnest(), exp.Query)), None)
    if query is not None:
        hint = "write (a, b) = (SELECT …), or <>, <, <=, >, >=: the row on the left"
        binder.source.refuse(query, "subquery must return only one column", hint)
    left, right = cells(binder, one) or [], cells(binder, other)
    if right is None or len(left) != len(right) or not left:
        binder.source.refuse(one, "unequal number of entries in row expressions", "write as many on each side")
    return [[binder.bind(a), binder.bind(b)] for a, b in zip(left, right, strict=True)]


def equal(binder: Binder, one: exp.Expr, other: exp.Expr) -> Expr:
    """That two rows are equal, column by column."""
    if any(composites.typed(binder, side) is not None for side in (one, other)):
        # Postgres compares such as values, or column by column, by how many there are and which of them are constants.
        binder.source.refuse(one, "IN of rows of a named type is not supported", "write = …, with OR between")
    if any(whole(binder, side) is not None for side in (one, other)):
        return _wholly(binder, exp.EQ(this=one.copy(), expression=other.copy()), "=")
    return decided("=", _pairs(binder, one, other))


def null(binder: Binder, node: exp.Expr, columns: Sequence[exp.Expr], word: str) -> Expr:
    """`row IS NULL`: all of its columns are; IS NOT NULL: none of them is."""
    if not columns:
        binder.source.refuse(node, "a row without columns is not supported")
    parts = [coerce.called(f"{word} null", [binder.settled(c)]) for c in columns]
    return Call("and", tuple(parts), BOOLEAN) if len(parts) > 1 else parts[0]


def counted(binder: Binder, node: exp.Expr) -> exp.Expr | None:
    """What count() counts for a table's whole rows: a column that only rows which are not there lack, or all rows; None
    where it counts something else. Raises ViewError.
    """
    columns = whole(binder, node)
    if columns is None:
        return None
    relation = binder.scope.relation(table_of(node))
    if relation is not None and relation.missing and relation.sure is not None:
        return columns[relation.sure]
    _check_there(binder, node)
    return exp.Star()


def keyed(binder: Binder, node: exp.Expr) -> Expr | None:
    """What is equal where rows are, NULLs being equal; None for anything else. Raises ViewError."""
    columns = cells(binder, node)
    if columns is None:
        return None
    if composites.is_missing(binder, node):
        return Literal(None, TEXT)
    keys = []
    for column in columns:
        value = binder.bind(column)
        if value.type == coerce.UNKNOWN:
            binder.source.refuse(column, "could not identify a comparison function for type unknown", "cast it")
        keys.append(binder.typed(column, partial(_key, value)))
    return Call(MADE, tuple(keys), array_of(TEXT))


def ordered_cells(binder: Binder, item: exp.Expr) -> list[exp.Expr] | None:
    """What a row in an ORDER BY is in the order of: its columns, one after the other, NULLs behind all values, and before them
    whether the row is there; None for an item that is no row. Raises ViewError.
    """
    node = item.this
    columns = cells(binder, node)
    if columns is None:
        return None
    desc, first = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
    found: list[exp.Expr] = []
    missing = missing_cell(binder, node, columns)
    if missing is not None:
        there = exp.Is(this=missing.copy(), expression=exp.Null())
        found.append(exp.Ordered(this=there, desc=first, nulls_first=False))
    return found + [exp.Ordered(this=column, desc=desc, nulls_first=desc) for column in columns]


def missing_cell(binder: Binder, node: exp.Expr, columns: Sequence[exp.Expr]) -> exp.Expr | None:
    """The column of a table's whole row that is NULL only where an outer join has no such row; None for a row that is always
    there. Raises ViewError where no column tells."""
    if composites.is_missing(binder, node):
        binder.source.refuse(node, "NULL of a composite type as a key is not supported", _HINT)
    relation = None if whole(binder, node) is None else binder.scope.relation(table_of(node))
    if relation is None or not relation.missing:
        return None
    if relation.sure is None:
        binder.source.refuse(node, _WHOLE_NULL, _HINT)
    return columns[relation.sure]


def _key(value: Expr) -> Expr:
    """What is the same of equal values. Raises TypeProblem."""
    coerce.check_comparable(value.type, "DISTINCT")
    return coerce.called("$key", [value])


@binds(exp.Dot)
def _field(binder: Binder, node: exp.Expr) -> Expr:
    """`(t).column`, `(ROW(…)).f1`; and a function of pg_catalog."""
    inner, field = node.this, node.expression
    if name_of(inner) == "pg_catalog" and isinstance(field, exp.Anonymous):
        return binder.bind(field)
    if not isinstance(inner, exp.Paren) or not isinstance(field, exp.Identifier):
        return unsupported(binder, node)
    name = name_of(field)
    columns = whole(binder, inner)
    if columns is not None:
        found = [c for c in columns if c.name == name]
        if not found:
            binder.source.refuse(node, f'column "{name}" not found in data type {table_of(inner)}')
        return binder.bind(exp.Column(**found[0].args))
    parts = cells(binder, inner)
    if parts is None:
        return unsupported(binder, node)
    known = names(binder, inner, parts)
    if name not in known:
        fields = composites.typed(binder, inner)
        kind = "" if fields is None else spelled_as(inner.unnest().args["to"]).lower()
        missing = f'could not identify column "{name}" in record data type'
        binder.source.refuse(node, f'column "{name}" not found in data type {kind}' if kind else missing)
    return binder.settled(parts[known.index(name)])
