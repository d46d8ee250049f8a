"""Expressions of rules, handed to the SQL front end: its parser, its binder, its functions, types and errors.

An expression is written as the item of a SELECT, in which variables are quoted names, strings are SQL's and each aggregate
is a name of its own. Invariant: every character of that SELECT knows its place in the program. Called by `bodies`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Expr
from headrace.views.datalog.context import Context
from headrace.views.datalog.functors import TWO_MEANINGS, call_at, is_called
from headrace.views.datalog_text.syntax import Aggregate, Expression
from headrace.views.datalog_text.tokens import Token, string_value
from headrace.views.plan import Plan, Project, identity
from headrace.views.spec import ViewSpec
from headrace.views.sql.binder import Binder
from headrace.views.sql.coerce import settled
from headrace.views.sql.from_clause.set_returning import SetCalls
from headrace.views.sql.parsing.parse import LONGEST_NAME, Source, parse
from headrace.views.sql.scope import Relation, Scope

_HEAD = "select ("


@dataclass(frozen=True)
class Read:
    """An expression that SQL's parser has read: `node` in the SELECT of `source`; `variables`: the names that it reads."""

    source: Source
    node: exp.Expr
    variables: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """The rows of a body as far as it is bound: `places` tells each variable's column."""

    plan: Plan
    places: Mapping[str, int]

    @property
    def scope(self) -> Scope:
        """The variables as SQL's names; `$n` is column n."""
        columns = self.plan.schema.columns
        numbered = ((f"${n}", n) for n in range(len(columns)))
        return Scope((Relation("", columns),), (*self.places.items(), *numbered))


class Reader:
    """Reads the expressions of one rule. `variables`: the names that are variables whatever SQL makes of them."""

    def __init__(self, context: Context, variables: Set[str]) -> None:
        self.context = context
        self.variables = variables
        self.names: dict[Aggregate, str] = {}
        self._read: dict[Expression, Read] = {}

    def name_of(self, aggregate: Aggregate) -> str:
        """The name under which an aggregate's value stands in the row."""
        return self.names.setdefault(aggregate, f"$aggregate{len(self.names)}")

    def read(self, expression: Expression) -> Read:
        """The expression parsed. Raises ViewError."""
        found = self._read.get(expression)
        if found is None:
            found = self._read[expression] = self._parsed(expression)
        return found

    def text(self, text: str, at: int) -> Read:
        """An expression of ours, all of which stands at one place of the program."""
        return self._select([(text, at)])

    def differs(self, name: str, other: Expression) -> Read:
        """That a variable has another value than an expression. Raises ViewError."""
        at = other.start
        return self._select([(f'"{name}" <> (', at), *self._parts(other), (")", at)])

    def called(self, function: str, value: Expression, at: int) -> Read:
        """A function of SQL called with an expression. Raises ViewError."""
        return self._select([(f"{function}(", at), *self._parts(value), (")", at)])

    def _parsed(self, expression: Expression) -> Read:
        match expression.pieces:
            case (Token("name", name, at),) if name in self.variables and len(name.encode()) <= LONGEST_NAME:
                return self._variable(name, at)
        return self._select(self._parts(expression))

    def _variable(self, name: str, at: int) -> Read:
        """What `_select` reads of a variable alone, which most expressions are: nothing needs a parser."""
        text = f'{_HEAD}"{name}" )'
        source = Source(self._spec(text, lambda _: self.context.spec.place(at)), text, self.context.env.catalog)
        identifier = exp.Identifier(this=name, quoted=True)
        identifier.meta.update(start=len(_HEAD), end=len(text) - 3)
        return Read(source, exp.Column(this=identifier), (name,))

    def _spec(self, text: str, locate: Callable[[int], tuple[int, int]]) -> ViewSpec:
        spec = self.context.spec
        return ViewSpec(spec.program, text, spec.file, line=spec.line, locate=locate)

    def _parts(self, expression: Expression) -> list[tuple[str, int]]:
        parts: list[tuple[str, int]] = []
        pieces, place = expression.pieces, 0
        while place < len(pieces):
            piece = pieces[place]
            if (
                isinstance(piece, Token)
                and piece.kind == "name"
                and piece.text in TWO_MEANINGS
                and is_called(pieces, place)
            ):
                reason, hint = TWO_MEANINGS[piece.text]
                raise self.context.error(piece.start, reason, hint)
            if (functor := call_at(pieces, place)) is not None:
                template, arguments, place = functor
                for part in template:
                    parts += [(part, piece.start)] if isinstance(part, str) else self._parts(arguments[part])
                continue
            place += 1
            if isinstance(piece, Aggregate):
                parts.append((f'"{self.name_of(piece)}"', piece.start))
                continue
            parts.append((self._spelled(piece, called=is_called(pieces, place - 1)), piece.start))
        return parts

    def _spelled(self, token: Token, *, called: bool) -> str:
        if token.kind == "string":
            return "'" + string_value(token).replace("'", "''") + "'"
        if token.kind == "name" and token.text in self.variables and not called:
            return f'"{token.text}"'
        return token.text

    def _select(self, parts: list[tuple[str, int]]) -> Read:
        """The SELECT of the expression's parts, each with its place. Raises ViewError."""
        text, places = _HEAD, [parts[0][1]] * len(_HEAD)
        for part, at in parts:
            text += part + " "
            places += [at] * (len(part) + 1)
        text += ")"
        places.append(parts[-1][1])
        spec = self.context.spec

        def locate(offset: int) -> tuple[int, int]:
            return spec.place(places[min(offset, len(places) - 1)])

        source, query = parse(self._spec(text, locate), self.context.env.catalog)
        source.only(query, {"expressions"})
        [item] = query.expressions if len(query.expressions) == 1 else [query]
        node = item.this if isinstance(item, exp.Paren) else item
        inner = node.find(exp.Query, exp.Subquery)
        if inner is not None:
            source.refuse(inner, "subqueries are not supported in rules", "use an atom of a relation")
        columns = (c for c in node.find_all(exp.Column) if isinstance(c.this, exp.Identifier))
        return Read(source, node, tuple(dict.fromkeys(str(c.this.this) for c in columns)))

    def bind(self, state: State, read: Read, clause: str = "a rule") -> Expr:
        """The expression over a state's row; a literal may still have no type. Raises ViewError."""
        found = Binder(read.source, state.scope, clause).bind(read.node)
        self._note(read)
        return found

    def bind_set(self, state: State, name: str, read: Read) -> State:
        """The rows with one column more, `name`, the expression's value: of a function that returns a set, a row for each. Raises
        ViewError."""
        sets = SetCalls()
        value = settled(Binder(read.source, state.scope, "a rule", sets=sets).bind(read.node))
        self._note(read)
        width = len(state.plan.schema.columns)
        plan, [value] = sets.attached(state.plan, [value])
        own, names = identity(plan.schema, range(width))
        return State(Project(plan, (*own, value), (*names, name)), {**state.places, name: width})

    def truth(self, state: State, read: Read) -> Expr:
        """The condition over a state's row. Raises ViewError."""
        found = Binder(read.source, state.scope, "a rule").boolean(read.node, "a condition")
        self._note(read)
        return found

    def _note(self, read: Read) -> None:
        """What is made of constants alone, which fails before any row is read, has a place in the program."""
        for expr in read.source.constants:
            self.context.source.constants.setdefault(expr, 0)


def equals(position: int, read: Read) -> Read:
    """That column `position` of the row equals an expression."""
    column = exp.Column(this=exp.Identifier(this=f"${position}", quoted=True))
    return Read(read.source, exp.EQ(this=column, expression=read.node.copy()), read.variables)
