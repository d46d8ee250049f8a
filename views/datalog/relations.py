"""Relations as plans: each the set of what its rules give, with the types that follow from them, a recursive group together.

A column has the type that UNION would give it over the rules, or the declared one. In a recursive group types and NULLs are
found by binding the rules until nothing changes. Invariant: a relation's plan has each row once, NULL being one value. Called by
`program`, in the order of the strata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.ir import Expr, Literal
from headrace.engine.schema import BOOLEAN, NUMERIC, TEXT, Column, DataType, Kind, Schema
from headrace.views.datalog.bodies import Body, outside, variables_of
from headrace.views.datalog.checks import Relation
from headrace.views.datalog.context import Context
from headrace.views.datalog.expressions import Reader, State
from headrace.views.datalog.strata import names_read
from headrace.views.datalog_text.syntax import Negative, Rule
from headrace.views.errors import ViewError
from headrace.views.expressions import may_be_null
from headrace.views.keys import unique_sets
from headrace.views.limits import Unstratified
from headrace.views.plan import (
    Distinct,
    Filter,
    Import,
    One,
    Plan,
    Project,
    Recursion,
    Reference,
    Scan,
    Union,
    identity,
)
from headrace.views.plan_node import Variable
from headrace.views.recursion import Kept
from headrace.views.sql import coerce
from headrace.views.sql.coerce import UNKNOWN

MOST_TRIES = 12
"""So often the types of a recursive group may change."""

_OF_SOUFFLE = {
    "bshru": "a >> b, of what is not below zero",
    "land": "(a <> 0 and b <> 0)",
    "lor": "(a <> 0 or b <> 0)",
    "lnot": "(a = 0)",
    "as": "x::type",
    "ord": "a key of the inputs' rows",
}
"""What to write in the place of Soufflé's functors that have no template."""

Bound = tuple[Rule, State, tuple[Expr, ...]]


@dataclass(frozen=True)
class Counted:
    """Why the rounds of a group count, and how many there may be, where the program says that."""

    why: str
    rounds: Unstratified | None = None


class Relations:
    """Binds relations. `plans`: of each one bound so far the rows and the names of its columns; `broken`: those that have a
    mistake, and those that read one. `counted`: the relations that negate or aggregate themselves.
    """

    def __init__(
        self, context: Context, relations: Mapping[str, Relation], counted: Mapping[str, Counted] | None = None
    ) -> None:
        self.context = context
        self.relations = relations
        self.counted = dict(counted or {})
        self.plans: dict[str, tuple[Plan, tuple[str, ...]]] = {}
        self.broken = {n for n, r in relations.items() if r.broken}

    def bind(self, group: Sequence[str], *, recursive: bool) -> None:
        """The plans of one stratum's relations. Mistakes are kept in the context."""
        given = [n for n in group if n not in self.broken]
        if len(given) < len(group):
            # Its rules are bound all the same where their own relations are known, for their mistakes.
            self.broken.update(group)
        relation = self.relations[group[0]]
        if relation.reads is not None:
            self.input(relation)
        elif recursive:
            self.recursive(group)
        else:
            self.plain(relation)

    # Inputs.

    def input(self, relation: Relation) -> None:
        """The set of rows of a table or view."""
        given = relation.reads
        if relation.broken or given is None:
            return
        env = self.context.env
        view = env.views.get(given.table) if given.schema is None else None
        known = env.catalog.find(given.schema, given.table)
        if view is not None and known is not None:
            hint = f"write {known[0]} for the table, or rename the view"
            self.context.tell(given.table_at, f'"{given.table}" is both a table and a view', hint)
            self.broken.add(relation.name)
            return
        rows: Plan
        if view is not None and view.failing is not None:
            rows = view.failing
        elif view is not None:
            rows = Import(view.name, view.fingerprint, view.schema, at=given.table_at)
        else:
            assert known is not None, "the names are checked"
            rows = Scan(known[0], known[1], at=given.table_at)
        names = rows.schema.names
        taken = [n for n, _ in given.given] if given.given is not None else names
        own = identity(rows.schema, [names.index(n) for n in taken])[0]
        try:
            exprs = [self.declared(e, t) for e, t in zip(own, relation.declared, strict=True)]
        except HeadraceError as error:
            self.context.tell(relation.at, f"input {relation.name}: {error.what}", error.hint)
            self.broken.add(relation.name)
            return
        self.keep(relation, Project(rows, tuple(exprs), relation.columns))

    def declared(self, expr: Expr, kind: DataType | None) -> Expr:
        """The value in the declared type, as INSERT would store it. Raises TypeProblem for one that it would refuse."""
        return expr if kind is None else coerce.assigned(expr, kind, "a column")

    # Rules.

    def plain(self, relation: Relation) -> None:
        """A relation that does not read itself."""
        bound = self.bound(relation.rules)
        if relation.name in self.broken or len(bound) < len(relation.rules):
            self.broken.add(relation.name)
            return
        columns = self.columns(relation, bound)
        if columns is not None:
            self.keep(relation, self.union(relation, bound, columns))

    def keep(self, relation: Relation, plan: Plan) -> None:
        """The relation's rows, each once."""
        for column in plan.schema.columns:
            try:
                coerce.check_comparable(column.type, "a relation")
            except HeadraceError as error:
                at = relation.reads.start if relation.reads is not None else relation.at
                self.context.tell(at, f"column {column.name} of {relation.name}: {error.what}", "leave the column out")
                self.broken.add(relation.name)
                return
        self.plans[relation.name] = (plan if unique_sets(plan) else Distinct(plan), relation.columns)

    def bound(self, rules: Sequence[Rule]) -> list[Bound]:
        """The rules bound as far as they are right; what they read and is unknown makes no mistake of their own."""
        found = []
        for rule in rules:
            try:
                found.append(self.rule(rule))
            except ViewError as error:
                self.context.keep(self.named(error, rule), rule.text)
            except HeadraceError as error:
                self.context.tell(rule.start, error.what, error.hint, rule.text)
            except RecursionError:
                reason = "an expression is nested too deeply"
                self.context.tell(rule.start, reason, "bind its parts to variables", rule.text)
            except _Waits:
                pass
        return found

    def named(self, error: ViewError, rule: Rule) -> ViewError:
        """A function that does not exist is a relation that does not, where it stands as an atom."""
        for literal in rule.body:
            name = getattr(getattr(literal, "atom", None), "name", None)
            if name is not None and error.what.startswith(f"function {name.lower()}(") and "not exist" in error.what:
                known = [n for n in self.relations if not n.startswith("constraint ")]
                hint = f"its relations are {', '.join(known)}"
                return ViewError(f"there is no relation {name}, nor a function", hint=hint, **error.where)
        called = error.what.removeprefix("function ").removeprefix("aggregate ").split("(", 1)[0].split(" ", 1)[0]
        if error.what.startswith(("function ", "aggregate ")) and called in _OF_SOUFFLE:
            return ViewError(error.what, hint=f"functions are SQL's: write {_OF_SOUFFLE[called]}", **error.where)
        if error.what.startswith("set-returning functions are not allowed in a rule"):
            hint = "give its values a variable of their own, n = range(…), and compare that"
            return ViewError(error.what, hint=hint, **error.where)
        return error

    def rule(self, rule: Rule) -> Bound:
        """One rule's rows and head. Raises ViewError, and _Waits where a relation it reads is not bound; one that it negates
        has no say in the types, and is left out until it is.
        """
        reader = Reader(self.context, variables_of(rule))
        literals = [x for x in rule.body if not (isinstance(x, Negative) and self.waits(x.atom.name))]
        if any(map(self.waits, names_read(literals))):
            raise _Waits
        around = outside(rule, reader)
        body = Body(self.context, rule, self.plans, reader, around)
        state = body.bind(literals, State(One(), {}))
        reads = [reader.read(a.value) for a in rule.head.arguments if a.value is not None]
        unbound = {
            v: r for r, x in zip(rule.head.arguments, reads, strict=True) for v in body.missing(x.variables, state)
        }
        if unbound:
            body.refuse_variables({v: a.start for v, a in unbound.items()})
        return rule, state, tuple(reader.bind(state, read) for read in reads)

    def waits(self, name: str) -> bool:
        """Whether a relation is not bound yet."""
        return name in self.relations and name not in self.plans

    def columns(self, relation: Relation, bound: Sequence[Bound]) -> list[Column] | None:
        """The columns over all rules; None where they do not agree, which is told."""
        found = []
        for place, (name, kind) in enumerate(zip(relation.columns, relation.declared, strict=True)):
            exprs = [b[2][place] for b in bound]
            if kind is None and not exprs:
                reason = f"relation {relation.name} has no rules, and column {name} no type"
                self.context.tell(relation.at, reason, f"declare it: .decl {relation.name}({name}: bigint, …)")
                self.broken.add(relation.name)
                return None
            try:
                target = kind if kind is not None else _common(exprs)
                for (rule, _, _), expr in zip(bound, exprs, strict=True):
                    self.checked(relation, rule, place, expr, target)
            except _Disagrees:
                return None
            except HeadraceError as error:
                at = bound[-1][0].head.arguments[place].start
                reason = f"column {name} of {relation.name}: {error.what}"
                self.context.tell(at, reason, error.hint or "cast one of them", bound[-1][0].text)
                self.broken.add(relation.name)
                return None
            nullable = any(may_be_null(e, s.plan.schema.columns) for (_, s, _), e in zip(bound, exprs, strict=True))
            found.append(Column(name, target, nullable=nullable))
        return found

    def checked(self, relation: Relation, rule: Rule, place: int, expr: Expr, target: DataType) -> None:
        """That INSERT would store a rule's value in a column of the type. Raises _Disagrees."""
        try:
            coerce.assigned(expr, target, "a column")
        except HeadraceError:
            at = rule.head.arguments[place].start
            name = relation.columns[place]
            reason = f"column {name} of {relation.name} is {target}, and the rule gives {expr.type}"
            self.context.tell(at, reason, f"cast it: ::{target}", rule.text)
            self.broken.add(relation.name)
            raise _Disagrees from None

    def union(self, relation: Relation, bound: Sequence[Bound], columns: Sequence[Column]) -> Plan:
        """The rows of all rules, in the columns' types."""
        parts: list[Plan] = []
        for _, state, exprs in bound:
            typed = (coerce.coerced(e, c.type) for e, c in zip(exprs, columns, strict=True))
            parts.append(Project(state.plan, tuple(typed), relation.columns))
        if not parts:
            nothing = Filter(One(), Literal(False, BOOLEAN))
            parts.append(Project(nothing, tuple(Literal(None, c.type) for c in columns), relation.columns))
        return parts[0] if len(parts) == 1 else Union(tuple(parts))

    # Recursion.

    def recursive(self, group: Sequence[str]) -> None:
        """A group of relations that read each other, as one recursion."""
        known: dict[str, list[Column]] = {}
        before = len(self.context.mistakes)
        for _ in range(MOST_TRIES):
            self.plans.update({n: (self.reference(n, c), self.relations[n].columns) for n, c in known.items()})
            bound = {n: self.bound(self.relations[n].rules) for n in group}
            now: dict[str, list[Column]] = {}
            for name in group:
                if not bound[name] and any(k is None for k in self.relations[name].declared):
                    continue
                columns = self.columns(self.relations[name], bound[name])
                if columns is not None:
                    now[name] = [_wider(c, k) for c, k in zip(columns, known.get(name, columns), strict=True)]
            if now == known or len(self.context.mistakes) > before:
                break
            known = now
        for name in group:
            self.plans.pop(name, None)
        whole = len(known) == len(group) and all(len(bound[n]) == len(self.relations[n].rules) for n in group)
        if not whole or now != known or self.broken & set(group):
            if len(self.context.mistakes) == before:
                missing = next((n for n in group if n not in known), group[0])
                reason = f"the types of {missing} do not follow from its rules"
                hint = f"declare them: .decl {missing}({', '.join(self.relations[missing].columns)}) with a type each"
                self.context.tell(self.relations[missing].at, reason, hint)
            self.broken.update(group)
            return
        spec = self.context.spec
        counted = self.counted.get(group[0], Counted(""))
        limit = counted.rounds
        rules = {n: Distinct(self.union(self.relations[n], bound[n], known[n])) for n in group}
        kept: Kept = "set"
        for place, name in enumerate(group):
            # But for what is shown all are alike, so that one loop makes them all.
            made = Recursion(
                ", ".join(group),
                tuple(Variable(n, 0) for n in group),
                (kept,) * len(group),
                (None,) * len(group),
                tuple(rules[n] for n in group),
                spec.rounds if limit is None else limit.rounds,
                counted.why,
                spec.rows,
                "error" if limit is None else limit.at_limit,
                place,
            )
            self.plans[name] = (made, self.relations[name].columns)

    def reference(self, name: str, columns: Sequence[Column]) -> Reference:
        """A relation of the group as its rules read it."""
        return Reference(Variable(name, 0), Schema(tuple(columns)))


class _Waits(Exception):
    """A rule reads a relation that is not bound."""


class _Disagrees(Exception):
    """A rule's value is not of its column's type."""


def _common(exprs: Sequence[Expr]) -> DataType:
    """The type that UNION gives to the values. Raises TypeProblem."""
    if all(e.type == UNKNOWN for e in exprs):
        return TEXT
    types = {e.type for e in exprs if e.type != UNKNOWN}
    if len(types) > 1 and all(t.kind is Kind.NUMERIC for t in types):
        return NUMERIC
    return coerce.unified(exprs, "the rules:")[1]


def _wider(column: Column, known: Column) -> Column:
    """The column as wide as it was before: a type that a rule narrows would change without end."""
    if column.type.kind is Kind.NUMERIC and known.type.kind is Kind.NUMERIC and column.type != known.type:
        column = replace(column, type=NUMERIC)
    return replace(column, nullable=column.nullable or known.nullable)


__all__ = ["Relations"]
