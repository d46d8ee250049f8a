"""Records of fixed width taken apart: a column that holds records becomes a column for each field, and so does every variable.

Which columns hold records follows from `.type`, `.decl` and the rules. Invariant: afterwards no argument is a record, and a
relation has the same rows, spread over more columns. Called by the parser, once a program is read without mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.views.datalog_text.syntax import (
    Aggregate,
    Argument,
    Atom,
    Condition,
    Constraint,
    Declared,
    Expression,
    Literal,
    Negative,
    Positive,
    Program,
    Rule,
    expressions_of,
    names_of,
)
from headrace.views.datalog_text.tokens import Token, Wrong

DEEPEST = 8
"""Records may stand in records so often."""


@dataclass(eq=False)
class Shape:
    """What is known of a column or a variable: a record with `fields`, no record (`plain`), or nothing yet. `same`: another one
    that it is.
    """

    fields: list[Shape] | None = None
    names: tuple[str, ...] = ()
    plain: str = ""
    same: Shape | None = None

    def found(self) -> Shape:
        """The shape that stands for it."""
        shape = self
        while shape.same is not None:
            shape = shape.same
        return shape


def has_records(program: Program) -> bool:
    """Whether a record stands anywhere."""
    rules = _rules(program)
    in_atoms = any(_record_in(a) for r in rules for a in _atoms([*r.body], r.head))
    return bool(program.records) or in_atoms or compares_records(program)


def compares_records(program: Program) -> bool:
    """Whether a record stands beside an (in)equality sign."""
    return any(condition.is_of_records for rule in _rules(program) for condition in _conditions(rule.body))


def flatten(program: Program) -> None:
    """Takes a program's records apart. Raises Wrong."""
    _Flattening(program).run()


def _rules(program: Program) -> list[Rule]:
    """The rules, and each constraint as a rule whose head is ignored."""
    heads = [(c, Atom(f"constraint {c.name}", (), c.start, c.start)) for c in program.constraints]
    return [*program.rules, *(Rule(head, body, c.text, c.start) for c, head in heads for body in c.bodies)]


def _atoms(body: Sequence[Literal], *more: Atom) -> Iterator[Atom]:
    yield from more
    for literal in body:
        if isinstance(literal, Condition):
            expressions: Sequence[Expression] = (literal.expression,)
        else:
            yield literal.atom
            expressions = tuple(a.value for a in literal.atom.arguments if a.value is not None)
        for expression in expressions:
            for aggregate in expression.aggregates:
                yield from _atoms(aggregate.body)


def _conditions(body: Sequence[Literal]) -> Iterator[Condition]:
    for literal in body:
        if isinstance(literal, Condition):
            yield literal
    for expression in (e for literal in body for e in expressions_of(literal)):
        for aggregate in expression.aggregates:
            yield from _conditions(aggregate.body)


def _record_in(atom: Atom) -> bool:
    return any(a.record is not None for a in atom.arguments)


class _Flattening:
    """Finds the shapes of all columns and variables, and then takes the program apart."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.columns: dict[str, list[Shape]] = {}
        self.names: dict[str, list[str]] = {}
        self.declared = {d.name for d in program.declared}

    def run(self) -> None:
        """All of it."""
        program = self.program
        for declared in program.declared:
            self.columns[declared.name] = [self.typed(t, at) for _, t, at in declared.columns]
            self.names[declared.name] = [n for n, _, _ in declared.columns]
        for given in program.inputs:
            names = list(given.columns or [n for n, _ in given.given or ()] or self.names.get(given.name, []))
            if names:
                self.names[given.name] = names
                self.columns[given.name] = [Shape(plain=f"a column of the input {given.name}") for _ in names]
        for rule in program.rules:
            self.names.setdefault(rule.head.name, _names_of_head(rule.head))
        variables = [self.shaped(rule) for rule in _rules(program)]
        program.rules[:] = [self.rule(r, v) for r, v in zip(program.rules, variables, strict=False)]
        rest = variables[len(program.rules) :]
        made = []
        for constraint in program.constraints:
            bodies = [self.body(b, rest.pop(0)) for b in constraint.bodies]
            made.append(Constraint(constraint.name, tuple(bodies), constraint.text, constraint.start))
        program.constraints[:] = made
        self.declare()

    def typed(self, spelled: str | None, at: int, depth: int = 0) -> Shape:
        """The shape that a type says."""
        if spelled is None:
            return Shape()
        seen = {spelled}
        while spelled in self.program.types and spelled not in self.program.records:
            spelled = self.program.types[spelled]
            if spelled in seen:
                break
            seen.add(spelled)
        record = self.program.records.get(spelled)
        if record is None:
            return Shape(plain=f"a {spelled}")
        if depth >= DEEPEST:
            reason = f"the record type {spelled} holds itself, or more than {DEEPEST} others"
            raise Wrong(at, reason, "records have a fixed width: give a list a relation of its items")
        fields = [self.typed(kind, at, depth + 1) for _, kind in record]
        return Shape(fields=fields, names=tuple(name for name, _ in record))

    # Shapes.

    def shaped(self, rule: Rule) -> dict[str, Shape]:
        """The shapes of a rule's variables."""
        variables: dict[str, Shape] = {}
        for atom in _atoms(rule.body, rule.head):
            known = self.columns.setdefault(atom.name, [])
            for place, argument in enumerate(atom.arguments):
                at = place
                if argument.name is not None and argument.name in self.names.get(atom.name, ()):
                    at = self.names[atom.name].index(argument.name)
                while len(known) <= at:
                    known.append(Shape())
                self.meet(known[at], self.of(argument, variables), argument.start)
        for condition in _conditions(rule.body):
            if condition.sides is not None:
                one, two = (self.of(side, variables) for side in condition.sides)
                self.meet(one, two, condition.expression.start)
        return variables

    def of(self, argument: Argument, variables: dict[str, Shape]) -> Shape:
        """The shape of an argument."""
        if argument.record is not None:
            return Shape(fields=[self.of(a, variables) for a in argument.record])
        if argument.value is None:
            return Shape()
        name = argument.value.variable
        return Shape(plain="an expression") if name is None else variables.setdefault(name, Shape())

    def meet(self, one: Shape, two: Shape, at: int, depth: int = 0) -> None:
        """Two shapes are one. Raises Wrong where they cannot be."""
        one, two = one.found(), two.found()
        if one is two:
            return
        if depth > DEEPEST:
            raise Wrong(at, "a record holds itself", "records have a fixed width: give a list a relation of its items")
        if one.fields is None:
            one, two = two, one
        if one.fields is not None and two.plain:
            raise Wrong(at, f"a record stands where {two.plain} does", "give each field a column of its own")
        if one.fields is not None and two.fields is not None:
            if len(one.fields) != len(two.fields):
                reason = f"a record of {len(one.fields)} fields stands where one of {len(two.fields)} does"
                raise Wrong(at, reason, "records have a fixed width")
            for a, b in zip(one.fields, two.fields, strict=True):
                self.meet(a, b, at, depth + 1)
        two.same = one
        one.names = one.names or two.names
        one.plain = one.plain or two.plain

    def leaves(self, shape: Shape, name: str, at: int, sign: str = "_", depth: int = 0) -> list[str]:
        """The names of the columns, or variables, that one becomes."""
        shape = shape.found()
        if shape.fields is None:
            return [name]
        if depth > DEEPEST:
            raise Wrong(at, "a record holds itself", "records have a fixed width: give a list a relation of its items")
        found = []
        for place, field in enumerate(shape.fields):
            own = shape.names[place] if shape.names and sign == "_" else str(place + 1)
            found += self.leaves(field, f"{name}{sign}{own}", at, sign, depth + 1)
        return found

    # The program without records.

    def rule(self, rule: Rule, variables: dict[str, Shape]) -> Rule:
        """A rule without records."""
        return replace(rule, head=self.atom(rule.head, variables), body=self.body(rule.body, variables))

    def body(self, body: Sequence[Literal], variables: dict[str, Shape]) -> tuple[Literal, ...]:
        """A body without records."""
        found: list[Literal] = []
        for literal in body:
            if isinstance(literal, Condition):
                found += self.condition(literal, variables)
            elif isinstance(literal, Negative):
                found.append(Negative(self.atom(literal.atom, variables), literal.call))
            else:
                found.append(Positive(self.atom(literal.atom, variables), literal.call))
        return tuple(found)

    def condition(self, condition: Condition, variables: dict[str, Shape]) -> list[Condition]:
        """A condition without records: one for each field where two are equal, and one in all where they differ. Raises Wrong."""
        if condition.sides is None:
            return [Condition(self.expression(condition.expression, variables))]
        at = condition.expression.start
        one, two = (self.of(side, variables) for side in condition.sides)
        self.meet(one, two, at)
        shape = one.found()
        if shape.fields is None:
            return [Condition(self.expression(condition.expression, variables))]
        pairs = []
        for a, b in zip(*(list(self.parts(side, shape, variables)) for side in condition.sides), strict=True):
            if a.value is not None and b.value is not None:
                pairs.append(
                    (_bracketed(a.value), Token("mark", "=" if condition.equal else "<>", at, at), _bracketed(b.value))
                )
            elif not condition.equal:
                raise Wrong(at, "_ has no value", "give the field a variable, or compare the other fields alone")
        if condition.equal:
            return [Condition(Expression((*a, sign, *b))) for a, sign, b in pairs]
        opening, closing, either = Token("mark", "(", at, at), Token("mark", ")", at, at), Token("name", "or", at, at)
        each = [(opening, *a, sign, *b, closing) for a, sign, b in pairs]
        return [Condition(Expression(tuple(p for k, some in enumerate(each) for p in ((either,) if k else ()) + some)))]

    def atom(self, atom: Atom, variables: dict[str, Shape]) -> Atom:
        """An atom whose records are several arguments."""
        known, names = self.columns.get(atom.name, []), self.names.get(atom.name, [])
        found: list[Argument] = []
        for place, argument in enumerate(atom.arguments):
            at = names.index(argument.name) if argument.name in names else place
            shape = known[at].found()
            columns = self.leaves(shape, argument.name, argument.start) if argument.name is not None else None
            parts = list(self.parts(argument, shape, variables))
            if columns is not None:
                parts = [replace(p, name=n) for p, n in zip(parts, columns, strict=True)]
            found += parts
        return replace(atom, arguments=tuple(found))

    def parts(self, argument: Argument, shape: Shape, variables: dict[str, Shape]) -> Iterator[Argument]:
        """The arguments that one becomes."""
        shape = shape.found()
        if argument.record is not None:
            assert shape.fields is not None, "the record was met with it"
            for inner, field in zip(argument.record, shape.fields, strict=True):
                yield from self.parts(inner, field, variables)
            return
        if shape.fields is None:
            value = None if argument.value is None else self.expression(argument.value, variables)
            yield Argument(value, argument.start, argument.name)
            return
        at = argument.start
        if argument.value is None:
            yield from (Argument(None, at) for _ in self.leaves(shape, "", at))
            return
        name = argument.value.variable
        assert name is not None, "an expression is no record"
        for leaf in self.leaves(shape, name, at, " "):
            yield Argument(Expression((Token("name", leaf, at, at),)), at)

    def expression(self, expression: Expression, variables: dict[str, Shape]) -> Expression:
        """An expression, which reads no record. Raises Wrong."""
        for token in names_of(expression):
            shape = variables.get(token.text)
            if shape is not None and shape.found().fields is not None:
                reason = f"the record {token.text} stands in an expression"
                raise Wrong(token.start, reason, f"name its fields in an atom: [{token.text}1, …]")
        if not expression.aggregates:
            return expression
        pieces: list[Token | Aggregate] = []
        for piece in expression.pieces:
            if isinstance(piece, Aggregate):
                value = None if piece.value is None else self.expression(piece.value, variables)
                piece = replace(piece, value=value, body=self.body(piece.body, variables))
            pieces.append(piece)
        return Expression(tuple(pieces))

    def declare(self) -> None:
        """Declarations, outputs and questions with a column for each field."""
        program = self.program
        program.declared[:] = [
            replace(d, columns=tuple(self.expanded(d.name, [(n, t, at) for n, t, at in d.columns])))
            for d in program.declared
        ]
        inputs = {i.name for i in program.inputs}
        for name, shapes in self.columns.items():
            if name in self.declared or name in inputs or all(s.found().fields is None for s in shapes):
                continue
            names = self.names.get(name, [])
            if len(names) == len(shapes):
                columns: list[tuple[str, str | None, int]] = [(n, None, 0) for n in names]
                start = next((r.start for r in program.rules if r.head.name == name), 0)
                program.declared.append(Declared(name, tuple(self.expanded(name, columns)), start))
        for place, output in enumerate(program.outputs):
            if output.columns is not None and len(output.columns) == len(self.columns.get(output.name, ())):
                given = [(n, None, output.start) for n in output.columns]
                program.outputs[place] = replace(
                    output, columns=tuple(n for n, _, _ in self.expanded(output.name, given))
                )
        for place, query in enumerate(program.queries):
            shapes = self.columns.get(query.name, [])
            if len(query.columns) == len(shapes):
                signed = [
                    (n, g, at)
                    for (c, g, at), s in zip(query.columns, shapes, strict=True)
                    for n in self.leaves(s, c, at)
                ]
                program.queries[place] = replace(query, columns=tuple(signed))

    def expanded(
        self, name: str, columns: Sequence[tuple[str, str | None, int]]
    ) -> Iterator[tuple[str, str | None, int]]:
        """A relation's columns, a record's fields with their own types."""
        for (column, kind, at), shape in zip(columns, self.columns[name], strict=True):
            if shape.found().fields is None:
                yield column, kind, at
                continue
            kinds = list(self.kinds(kind)) if kind is not None else []
            leaves = self.leaves(shape, column, at)
            yield from zip(leaves, kinds or [None] * len(leaves), [at] * len(leaves), strict=True)

    def kinds(self, spelled: str) -> Iterator[str | None]:
        """The types of a record type's fields, those of records in it too."""
        meant = spelled
        while meant in self.program.types and meant not in self.program.records:
            meant = self.program.types[meant]
        record = self.program.records.get(meant)
        if record is None:  # by its own name, which may be a subtype's
            yield spelled
            return
        for _, kind in record:
            yield from self.kinds(kind)


def _bracketed(expression: Expression) -> tuple[Token | Aggregate, ...]:
    """An expression's pieces, in parentheses where it is more than one."""
    at = expression.start
    if len(expression.pieces) == 1:
        return expression.pieces
    return (Token("mark", "(", at, at), *expression.pieces, Token("mark", ")", at, at))


def _names_of_head(head: Atom) -> list[str]:
    """Names of a relation's columns after the variables in its first head."""
    found: list[str] = []
    for place, argument in enumerate(head.arguments):
        name = argument.name or (None if argument.value is None else argument.value.variable)
        name = f"column{place + 1}" if name is None else name.lstrip("?").lower()
        found.append(name if name not in found else f"column{place + 1}")
    return found


__all__ = ["compares_records", "flatten", "has_records"]
