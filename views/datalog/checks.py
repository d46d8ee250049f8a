"""The names of a program: its relations with their columns, and everything that can be wrong before types are known.

Every mistake is told, not the first one alone. Invariant: after `relations_of` each atom of a rule that is not `broken` names a
relation and has as many arguments as it has columns, in their order. Called by `program`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from headrace.engine.errors import HeadraceError
from headrace.engine.schema import DataType
from headrace.views.datalog.context import SOUFFLE, Context
from headrace.views.datalog.subtypes import check_subtypes
from headrace.views.datalog_text.syntax import (
    Argument,
    Atom,
    Condition,
    Constraint,
    Declared,
    Expression,
    Input,
    Literal,
    Negative,
    Positive,
    Rule,
    expressions_of,
    names_of,
)
from headrace.views.datalog_text.tokens import Token
from headrace.views.yaml_models import nearest


@dataclass
class Relation:
    """A relation: its columns, with a type where one is declared; `reads`: what an input reads; `rules` are its own."""

    name: str
    columns: tuple[str, ...]
    declared: tuple[DataType | None, ...]
    at: int
    reads: Input | None = None
    rules: list[Rule] = field(default_factory=list)
    broken: bool = False
    whole: bool = False


def relations_of(context: Context) -> dict[str, Relation]:
    """The relations by name, constraints among them under `constraint name`; mistakes are kept in the context."""
    program = context.program
    found: dict[str, Relation] = {}
    for declared in program.declared:
        _add(context, found, _declared(context, declared))
    for given in program.inputs:
        _input(context, found, given)
    rules = list(program.rules)
    for rule in program.rules:
        head = rule.head
        if head.name not in found:
            found[head.name] = Relation(head.name, _columns(rule), (None,) * len(head.arguments), head.start)
        elif found[head.name].reads is not None and not found[head.name].broken:
            rules.append(_apart(found, found[head.name]))
    rules += [r for c in program.constraints for r in _constraint(context, found, c)]
    for rule in rules:
        checked = _checked(context, rule, found)
        relation = found[rule.head.name]
        if checked is None:
            relation.broken = True
        else:
            relation.rules.append(checked)
    check_subtypes(context, [r for relation in found.values() for r in relation.rules])
    _outputs(context, found)
    _queries(context, found)
    return found


def constraint_key(name: str) -> str:
    """The name of a constraint's relation, which no rule can write."""
    return f"constraint {name}"


def warnings_of(context: Context, relations: dict[str, Relation]) -> tuple[str, ...]:
    """Relations that nothing reads, and variables that stand in their rule once."""
    program = context.program
    rules = [r for relation in relations.values() for r in relation.rules]
    read = {a.name for r in rules for a in _atoms(r.body)}
    read |= {o.name for o in program.outputs} | {q.name for q in program.queries}
    read |= {n for n, relation in relations.items() if relation.reads is not None and n.startswith("asked ")}
    found: dict[str, None] = {}
    for name, relation in relations.items():
        if name not in read and not name.startswith("constraint "):
            found[f"line {context.spec.place(relation.at)[0]}: nothing reads the relation {name}"] = None
    for rule in rules:
        if rule.head.name.startswith("constraint "):
            continue
        counts = Counter(t.text for t in _variables(rule))
        places = {t.text: t.start for t in _variables(rule)}
        for name, count in counts.items():
            if count == 1 and not name.startswith("_"):
                line = context.spec.place(places[name])[0]
                found[
                    f"line {line}: variable {name} stands in its rule once: write _ where its value does not matter"
                ] = None
    return tuple(found)


def _variables(rule: Rule) -> Iterator[Token]:
    """Where variables stand alone in an argument, or anywhere in an expression."""
    heads = [a.value for a in rule.head.arguments if a.value is not None]
    yield from _tokens([*heads, *(e for x in rule.body for e in expressions_of(x))])


def _tokens(expressions: Sequence[Expression]) -> Iterator[Token]:
    for expression in expressions:
        yield from names_of(expression)
        for aggregate in expression.aggregates:
            yield from _tokens([e for x in aggregate.body for e in expressions_of(x)])
            if aggregate.value is not None:
                yield from names_of(aggregate.value)


def _atoms(body: Sequence[Literal]) -> Iterator[Atom]:
    for literal in body:
        if not isinstance(literal, Condition):
            yield literal.atom
        for expression in expressions_of(literal):
            for aggregate in expression.aggregates:
                yield from _atoms(aggregate.body)


def _add(context: Context, found: dict[str, Relation], relation: Relation) -> None:
    first = found.setdefault(relation.name, relation)
    if first is not relation:
        line = context.spec.place(first.at)[0]
        context.tell(relation.at, f"relation {relation.name} is declared twice, first in line {line}", "remove one")
    double = next((n for n, count in Counter(relation.columns).items() if count > 1), None)
    if double is not None:
        context.tell(relation.at, f"relation {relation.name} has two columns named {double}", "rename one")


def _declared(context: Context, declared: Declared) -> Relation:
    types = tuple(None if spelled is None else _type(context, spelled, at) for _, spelled, at in declared.columns)
    return Relation(
        declared.name, tuple(n for n, _, _ in declared.columns), types, declared.start, whole=declared.whole
    )


def _type(context: Context, spelled: str, at: int) -> DataType | None:
    """The type that a name means: a synonym of the program, a type of Soufflé's or one of SQL's."""
    names = context.program.types
    passed = [spelled]
    while passed[-1] in names:
        passed.append(names[passed[-1]])
        if passed[-1] in passed[:-1]:
            context.tell(at, f"type {spelled} is defined by itself", "name a type of SQL")
            return None
    last = passed[-1]
    try:
        found = context.source.type_named(SOUFFLE.get(last, last))
    except HeadraceError as error:
        context.tell(at, error.what, error.hint)
        return None
    if found.kind.value == "other":
        hint = nearest(
            last, [*names, *SOUFFLE, "bigint", "integer", "text", "boolean", "date", "numeric", "timestamptz"]
        )
        context.tell(at, f'type "{last}" does not exist', hint)
        return None
    return found


def _input(context: Context, found: dict[str, Relation], given: Input) -> None:
    """A relation that reads a table or view. Its columns have the names that `.decl` gives, where it names them."""
    before = found.get(given.name)
    columns = given.columns or (before.columns if before is not None and before.reads is None else None)
    known = context.env.catalog.find(given.schema, given.table)
    view = context.env.views.get(given.table) if given.schema is None else None
    schema = view.schema if view is not None else None if known is None else known[1]
    spelled = given.table if given.schema is None else f"{given.schema}.{given.table}"
    relation = Relation(given.name, columns or (), before.declared if before is not None else (), given.start, given)
    if before is not None and before.reads is None:
        del found[given.name]
    _add(context, found, relation)
    if schema is None:
        relation.broken = True
        hint = nearest(spelled, context.env.spellings() if given.schema is None else tuple(context.env.catalog.tables))
        context.tell(given.table_at, f'there is no table or view "{spelled}"', hint)
    else:
        names = schema.names
        for name, at in given.given or ():
            if name not in names:
                relation.broken = True
                context.tell(at, f"column {name} does not exist in {spelled}", nearest(name, names))
        width = len(given.given) if given.given is not None else len(names)
        taken = tuple(n for n, _ in given.given) if given.given is not None else names
        if columns is not None and len(columns) != width:
            relation.broken = True
            reason = f"the input {given.name} has {len(columns)} columns, and {spelled} has {width}"
            listed = ", ".join(names[: len(columns)])
            context.tell(given.start, reason, f"name those to read: {spelled}({listed})")
        relation.columns = columns or taken
    if len(relation.declared) != len(relation.columns):
        relation.declared = (None,) * len(relation.columns)


def _apart(found: dict[str, Relation], relation: Relation) -> Rule:
    """Of an input to which rules add: the table's rows become a relation of their own, which the rule that is returned reads."""
    name, at = f"input {relation.name}", relation.at
    found[name] = replace(relation, name=name, rules=[])
    found[relation.name] = replace(relation, reads=None)
    names = (f"column {place}" for place in range(len(relation.columns)))
    arguments = tuple(Argument(Expression((Token("name", n, at, at),)), at) for n in names)
    read = Positive(Atom(name, arguments, at, at), Expression((Token("name", name, at, at),)))
    return Rule(Atom(relation.name, arguments, at, at), (read,), f".input {relation.name}", at)


def _columns(rule: Rule) -> tuple[str, ...]:
    """Names of a relation's columns after the variables in the first rule's head, where these tell them apart."""
    found: list[str] = []
    for place, argument in enumerate(rule.head.arguments):
        name = argument.name or (None if argument.value is None else argument.value.variable)
        name = f"column{place + 1}" if name is None else name.lstrip("?").lower()
        found.append(name if name not in found else f"column{place + 1}")
    return tuple(found)


def _constraint(context: Context, found: dict[str, Relation], constraint: Constraint) -> list[Rule]:
    """The rules of a constraint, whose columns are the variables that all of its alternatives bind by atoms or equations."""
    key = constraint_key(constraint.name)
    bound = []
    for body in constraint.bodies:
        sides = [s for x in body if isinstance(x, Condition) for s in x.expression.equated() or ()]
        sides += [a.value for x in body if isinstance(x, Positive) for a in x.atom.arguments if a.value is not None]
        tokens = (s.pieces[0] for s in sorted(sides, key=lambda s: s.start) if s.variable is not None)
        bound.append({t.text: t for t in tokens if isinstance(t, Token)})
    shown = [t for n, t in bound[0].items() if all(n in other for other in bound)]
    arguments = tuple(Argument(Expression((t,)), t.start) for t in shown)
    names = tuple(t.text.lstrip("?").lower() for t in shown)
    if not shown or len(set(names)) < len(names):
        true = Token("name", "true", constraint.start, constraint.start)
        arguments, names = (Argument(Expression((true,)), constraint.start),), ("violated",)
    _add(context, found, Relation(key, names, (None,) * len(names), constraint.start))
    head = Atom(key, arguments, constraint.start, constraint.start)
    return [Rule(head, body, constraint.text, constraint.start) for body in constraint.bodies]


def _outputs(context: Context, found: dict[str, Relation]) -> None:
    outputs = context.program.outputs
    for place, output in enumerate(outputs):
        relation = found.get(output.name)
        if relation is None:
            context.tell(output.start, f"there is no relation {output.name} to put out", nearest(output.name, found))
        elif output.columns is not None and len(output.columns) != len(relation.columns):
            reason = f"{output.name} has {len(relation.columns)} columns, and {len(output.columns)} names are given"
            context.tell(output.start, reason, f"its columns are {', '.join(relation.columns)}")
        if any(o.name == output.name for o in outputs[:place]):
            context.tell(output.start, f"{output.name} is put out twice", "remove one")
    views = (*outputs, *context.program.constraints, *(q for q in context.program.queries if q.asked is not None))
    if not views:
        context.tell(0, "the program puts nothing out", "name a relation: .output relation")


def _queries(context: Context, found: dict[str, Relation]) -> None:
    """Questions name relations, all of their columns, and values for those that are given."""
    queries = context.program.queries
    for place, query in enumerate(queries):
        relation = found.get(query.name)
        if relation is None:
            hint = nearest(query.name, _written(found))
            context.tell(query.start, f"there is no relation {query.name} to ask", hint)
            continue
        if len(query.columns) != len(relation.columns):
            reason = f"{query.name} has {len(relation.columns)} columns, and {len(query.columns)} names are given"
            context.tell(query.start, reason, f"its columns are {', '.join(relation.columns)}")
        if any(q.name == query.name for q in queries[:place]):
            context.tell(query.start, f"{query.name} is asked twice", "remove one")
        if not query.given:
            context.tell(
                query.start, f"the question of {query.name} gives no value", "write + before a column, or .output"
            )
        names = Counter(name for name, _, _ in query.columns)
        double = next((at for name, _, at in query.columns if names[name] > 1), None)
        if double is not None:
            context.tell(double, "two columns of the question have one name", "rename one")
        if query.asked is None:
            continue
        if any(o.name == query.name for o in context.program.outputs):
            context.tell(query.start, f"{query.name} is put out already", "remove the question's table, or the .output")
        _input(context, found, query.asked)
        asked = found[query.asked.name]
        if not asked.broken and len(asked.columns) != len(query.given):
            reason = f"the question of {query.name} gives {len(query.given)} values, and {query.asked.table} has "
            context.tell(
                query.asked.table_at, f"{reason}{len(asked.columns)} columns", f"name them: {query.asked.table}(…)"
            )
            asked.broken = True


def _checked(context: Context, rule: Rule, found: dict[str, Relation]) -> Rule | None:
    """The rule with positional arguments alone; None where it has mistakes, which are told."""
    checker = _Checker(context, rule, found)
    head = checker.head(rule.head)
    body = checker.body(rule.body)
    return replace(rule, head=head, body=body) if checker.is_right else None


@dataclass
class _Checker:
    """Checks the names and the arities of one rule. `is_right`: no mistake was found, be it one that was told before of another
    alternative of the same rule.
    """

    context: Context
    rule: Rule
    found: dict[str, Relation]
    is_right: bool = True

    def head(self, atom: Atom) -> Atom:
        """A head, each column of which must have a value."""
        made = self.atom(atom)
        for argument in made.arguments:
            if argument.value is None:
                self.tell(argument.start, "_ has no value, which a head must give", "give it a variable of the body")
            elif argument.value.aggregates:
                self.tell(argument.start, "an aggregate in a head", "bind it in the body: n = count : { … }")
        return made

    def body(self, literals: Sequence[Literal]) -> tuple[Literal, ...]:
        """All literals of a body."""
        return tuple(self.literal(x) for x in literals)

    def literal(self, literal: Literal) -> Literal:
        """One literal, with the bodies of its aggregates."""
        if isinstance(literal, Condition):
            return Condition(self.expression(literal.expression))
        unknown = literal.atom.name not in self.found and not nearest(literal.atom.name, self.found).startswith("did")
        if unknown and (isinstance(literal, Positive) or literal.atom.has_values):
            return literal  # it may be a function of SQL, which is told when it is bound
        if isinstance(literal, Negative):
            return Negative(self.atom(literal.atom), literal.call)
        return Positive(self.atom(literal.atom), literal.call)

    def expression(self, expression: Expression) -> Expression:
        """An expression, the bodies of whose aggregates are checked."""
        if not expression.aggregates:
            return expression
        pieces = (p if isinstance(p, Token) else replace(p, body=self.body(p.body)) for p in expression.pieces)
        return Expression(tuple(pieces))

    def atom(self, atom: Atom) -> Atom:
        """An atom with its arguments in the order of the columns."""
        relation = self.found.get(atom.name)
        if relation is None:
            self.tell(atom.start, f"there is no relation {atom.name}", nearest(atom.name, _written(self.found)))
            return atom
        if relation.broken and relation.reads is not None:
            return atom
        names, given = relation.columns, list(atom.arguments)
        placed: dict[str, Argument] = {}
        positional = [a for a in given if a.name is None]
        if len(positional) > len(names) or (len(positional) == len(given) and len(given) != len(names)):
            reason = f"{atom.name} has {len(names)} columns, and {len(given)} arguments are given"
            self.tell(atom.start, reason, f"its columns are {', '.join(names)}")
            return atom
        placed.update(zip(names, positional, strict=False))
        for argument in given:
            if argument.name is None:
                continue
            if argument.name not in names:
                reason = f"{atom.name} has no column {argument.name}"
                self.tell(argument.start, reason, nearest(argument.name, names))
            elif argument.name in placed:
                self.tell(argument.start, f"column {argument.name} of {atom.name} is given twice", "remove one")
            placed.setdefault(argument.name, argument)
        arguments = tuple(
            Argument(None, atom.start)
            if placed.get(n) is None
            else Argument(self.value(placed[n].value), placed[n].start)
            for n in names
        )
        return replace(atom, arguments=arguments)

    def value(self, expression: Expression | None) -> Expression | None:
        """An argument's expression."""
        return None if expression is None else self.expression(expression)

    def tell(self, at: int, reason: str, hint: str) -> None:
        """A mistake in the rule."""
        self.is_right = False
        self.context.tell(at, reason, hint, self.rule.text)


def _written(found: dict[str, Relation]) -> list[str]:
    return [n for n in found if " " not in n]


__all__ = ["Relation", "constraint_key", "relations_of", "warnings_of"]
