"""The syntax tree of a Datalog program. Every part knows where it stands in the text.

Invariant: alternatives (`;`) are rules of their own, so that a body is one conjunction. Made by `grammar`, read by
`headrace.views.datalog` and by the twin in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.views.datalog_text.tokens import Token

_CONSTANTS = frozenset({"true", "false", "null", "current_date", "current_timestamp", "localtimestamp"})


@dataclass(frozen=True)
class Mistake:
    """What is wrong at a character of the program; `rule`: the text of the rule that it is in."""

    at: int
    reason: str
    hint: str = ""
    rule: str = ""


@dataclass(frozen=True)
class Aggregate:
    """`count : { body }` or `sum value : { body }`."""

    function: str
    value: Expression | None
    body: tuple[Literal, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Expression:
    """An expression of SQL, as its tokens; an aggregate in it is one piece."""

    pieces: tuple[Token | Aggregate, ...]

    @property
    def start(self) -> int:
        """Its first character."""
        return self.pieces[0].start

    @property
    def end(self) -> int:
        """The character after its last."""
        return self.pieces[-1].end

    @property
    def variable(self) -> str | None:
        """The variable that it is, or None."""
        first = self.pieces[0]
        alone = len(self.pieces) == 1 and isinstance(first, Token) and first.kind == "name"
        return first.text if alone and isinstance(first, Token) and first.text.lower() not in _CONSTANTS else None

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregates in it."""
        return tuple(p for p in self.pieces if isinstance(p, Aggregate))

    def negated(self) -> Expression:
        """That it is not true."""
        at = self.start
        opening, closing = Token("mark", "(", at, at), Token("mark", ")", at, at)
        return Expression((Token("name", "not", at, at), opening, *self.pieces, closing))

    def equated(self) -> tuple[Expression, Expression] | None:
        """The two sides, if the expression is an equation at its outermost level."""
        depth = 0
        places = []
        for place, piece in enumerate(self.pieces):
            text = piece.text if isinstance(piece, Token) else ""
            depth += (text in ("(", "[")) - (text in (")", "]"))
            if depth == 0 and text.lower() in ("=", "and", "or", "not", "case", "<", ">", "!=", "<>", "<=", ">="):
                places.append(place)
        if len(places) != 1 or not 0 < places[0] < len(self.pieces) - 1:
            return None
        at = places[0]
        sign = self.pieces[at]
        if not isinstance(sign, Token) or sign.text != "=":
            return None
        return Expression(self.pieces[:at]), Expression(self.pieces[at + 1 :])


@dataclass(frozen=True)
class Argument:
    """An argument of an atom; `value` None for `_`; `name`: of its column, where that is given. `record`: the fields of a record,
    which the parser takes apart.
    """

    value: Expression | None
    start: int
    name: str | None = None
    record: tuple[Argument, ...] | None = None


@dataclass(frozen=True)
class Atom:
    """`name(arguments)`."""

    name: str
    arguments: tuple[Argument, ...]
    start: int
    end: int

    @property
    def has_values(self) -> bool:
        """Whether no argument is `_`."""
        return all(argument.value is not None for argument in self.arguments)


@dataclass(frozen=True)
class Positive:
    """An atom in a body; `call`: the same as an expression, which it is where no relation has the name."""

    atom: Atom
    call: Expression


@dataclass(frozen=True)
class Negative:
    """`!atom`; `call` as in `Positive`."""

    atom: Atom
    call: Expression


@dataclass(frozen=True)
class Condition:
    """An expression that must be true, or an equation that gives a variable its value. `sides`: of two records, or of two
    variables that may be records, which are `equal` or must differ; the parser takes them apart.
    """

    expression: Expression
    sides: tuple[Argument, Argument] | None = None
    equal: bool = True

    @property
    def is_of_records(self) -> bool:
        """Whether a side is written as a record."""
        return self.sides is not None and any(side.record is not None for side in self.sides)


Literal = Positive | Negative | Condition


@dataclass(frozen=True)
class Rule:
    """One head and one conjunction; a fact has no body. `text`: as it is written, for messages."""

    head: Atom
    body: tuple[Literal, ...]
    text: str
    start: int


@dataclass(frozen=True)
class Constraint:
    """A rule without a head; each alternative of its body is in `bodies`."""

    name: str
    bodies: tuple[tuple[Literal, ...], ...]
    text: str
    start: int


@dataclass(frozen=True)
class Declared:
    """`.decl name(column: type, …)`: each column's name, its type if one is given, and its place. `whole`: questions are
    answered from the whole relation.
    """

    name: str
    columns: tuple[tuple[str, str | None, int], ...]
    start: int
    whole: bool = False


@dataclass(frozen=True)
class Input:
    """`.input name(columns) = schema.table(columns)`."""

    name: str
    columns: tuple[str, ...] | None
    schema: str | None
    table: str
    given: tuple[tuple[str, int], ...] | None
    start: int
    table_at: int


@dataclass(frozen=True)
class Output:
    """`.output name(columns)`."""

    name: str
    columns: tuple[str, ...] | None
    start: int


@dataclass(frozen=True)
class Query:
    """`.query name(+given, -found) from schema.table(columns)`: of each column its name, whether it is given, and its place;
    `asked`: what the values are read from, or None where each question brings its own.
    """

    name: str
    columns: tuple[tuple[str, bool, int], ...]
    asked: Input | None
    start: int

    @property
    def given(self) -> tuple[int, ...]:
        """The places of the columns that are given."""
        return tuple(place for place, (_, given, _) in enumerate(self.columns) if given)


def query_key(name: str) -> str:
    """The name, which no rule can write, of the relation that answers a question."""
    return f"query {name}"


@dataclass
class Program:
    """A parsed program, and what is wrong in its text. Written by the parser alone.

    `types`: what each named type is of; `above`: of a subtype, and of the members of a union, the types that it is a part of.
    """

    text: str
    rules: list[Rule] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    declared: list[Declared] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    above: dict[str, dict[str, int]] = field(default_factory=dict)
    records: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    has_wrong_records: bool = False


def names_of(expression: Expression) -> Iterator[Token]:
    """The names in an expression that are not called: variables, and words of SQL; those of its aggregates apart."""
    pieces = expression.pieces
    for place, piece in enumerate(pieces):
        if isinstance(piece, Token) and piece.kind == "name":
            after = pieces[place + 1] if place + 1 < len(pieces) else None
            if not (isinstance(after, Token) and after.text == "("):
                yield piece


def expressions_of(literal: Literal) -> tuple[Expression, ...]:
    """The expressions that a literal holds."""
    if isinstance(literal, Condition):
        return (literal.expression,)
    return tuple(a.value for a in literal.atom.arguments if a.value is not None)


__all__ = [
    "Aggregate",
    "Argument",
    "Atom",
    "Condition",
    "Constraint",
    "Declared",
    "Expression",
    "Input",
    "Literal",
    "Mistake",
    "Negative",
    "Output",
    "Positive",
    "Program",
    "Query",
    "Rule",
    "expressions_of",
    "names_of",
    "query_key",
]
