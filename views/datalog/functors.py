"""Soufflé's functors, written as SQL. Each is a template of SQL around its arguments.

Invariant: a name that SQL has a function of, with as many arguments, is SQL's, or refused where the two differ. Functors whose
value depends on how Soufflé runs, such as `ord`, have no template. Called by `expressions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.views.datalog_text.syntax import Aggregate, Expression
from headrace.views.datalog_text.tokens import Token

Template = tuple[str | int, ...]
"""Texts of SQL, and the numbers of the arguments between them."""

_WHOLE: Template = ("(trunc((", 0, ")::text::numeric)::bigint)")
_FLOAT: Template = ("((", 0, ")::double precision)")
_TEXT: Template = ("((", 0, ")::text)")
_FUNCTORS: Mapping[tuple[str, int], Template] = {
    ("match", 2): ("((", 1, ") ~ ('^(?:' || (", 0, ") || ')$'))"),
    ("contains", 2): ("(strpos((", 1, "), (", 0, ")) > 0)"),
    ("strlen", 1): ("octet_length(", 0, ")"),
    **{(name, 1): _TEXT for name in ("to_string", "itos", "utos", "ftos")},
    **{(name, 1): _FLOAT for name in ("to_float", "itof", "utof")},
    **{(name, 1): _WHOLE for name in ("to_number", "to_unsigned", "ftoi", "ftou", "itou", "utoi")},
    ("bnot", 1): ("(~(", 0, "))"),
    ("range", 2): ("generate_series(", 0, ", ", 1, ", case when (", 0, ") <= (", 1, ") then 1 else -1 end)"),
    ("range", 3): ("generate_series(", 0, ", ", 1, ", ", 2, ")"),
}
_OF_SEVERAL: Mapping[str, tuple[str, str, str]] = {
    "cat": ("((", ") || (", "))"),
    "min": ("least(", ", ", ")"),
    "max": ("greatest(", ", ", ")"),
}
"""Functors of two and more arguments: what stands before, between and behind these."""

TWO_MEANINGS = {
    "substr": (
        "substr counts from 0 in Soufflé and from 1 in SQL",
        "write substring(s, start, count): it counts from 1",
    ),
}
"""Functions of both languages that mean different things, and so are taken for neither: why, and what to write."""


def template_of(name: str, count: int) -> Template | None:
    """The template of a functor with so many arguments; None where there is none.

    >>> template_of("max", 3)
    ('greatest(', 0, ', ', 1, ', ', 2, ')')
    """
    if name in _OF_SEVERAL and count > 1:
        before, between, behind = _OF_SEVERAL[name]
        inner = [part for k in range(count) for part in (between, k)]
        return (before, *inner[1:], behind)
    return _FUNCTORS.get((name, count))


def is_called(pieces: Sequence[Token | Aggregate], at: int) -> bool:
    """Whether an opening bracket follows the piece at a place."""
    after = pieces[at + 1] if at + 1 < len(pieces) else None
    return isinstance(after, Token) and after.text == "("


def call_at(pieces: Sequence[Token | Aggregate], at: int) -> tuple[Template, list[Expression], int] | None:
    """The functor that is called at a place: its template, its arguments, and the place behind it; None where none is."""
    name = pieces[at]
    if not (isinstance(name, Token) and name.kind == "name" and is_called(pieces, at)):
        return None
    arguments: list[Expression] = []
    depth, begin = 0, at + 2
    for place in range(at + 1, len(pieces)):
        piece = pieces[place]
        text = piece.text if isinstance(piece, Token) and piece.kind == "mark" else ""
        depth += (text in ("(", "[")) - (text in (")", "]"))
        if depth == 0 or (depth == 1 and text == ","):
            if place == begin:
                return None
            arguments.append(Expression(tuple(pieces[begin:place])))
            begin = place + 1
        if depth == 0:
            found = template_of(name.text, len(arguments))
            return None if found is None else (found, arguments, begin)
    return None


def end_of_range(expression: Expression) -> Expression | None:
    """The number before which a whole expression that is `range(…)` ends; None for all other expressions."""
    first = expression.pieces[0]
    if not isinstance(first, Token) or first.text != "range":
        return None
    found = call_at(expression.pieces, 0)
    return found[1][1] if found is not None and found[2] == len(expression.pieces) else None
