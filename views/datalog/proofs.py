"""Why a row is in a relation: each rule's rows with the rows of its body, for a few rows that are asked about.

What is asked about is rewritten as a question is, so that only what may be part of its proofs is derived. Invariant: the
instances hold every proof of least height. Called by `headrace.views.proofs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef
from headrace.engine.schema import BIGINT, DataType
from headrace.views.datalog.bodies import Body, outside, variables_of
from headrace.views.datalog.context import Context
from headrace.views.datalog.expressions import Reader, State
from headrace.views.datalog.groups import Strata
from headrace.views.datalog.magic import Asked, asked, wanted_of
from headrace.views.datalog.program import Checked, bound_plan
from headrace.views.datalog.relations import Relations
from headrace.views.datalog_text.syntax import Condition, Literal, Negative, Positive, Rule, query_key
from headrace.views.errors import ViewError
from headrace.views.plan import Distinct, One, Plan, Project, Reduce
from headrace.views.spec import ViewSpec
from headrace.views.sql import coerce
from headrace.views.sql.environment import Environment

_VALUES = "asked about"


@dataclass(frozen=True)
class Read:
    """An atom of a rule's body: its relation, how many columns it has, and what an input reads."""

    relation: str
    width: int
    table: str = ""


@dataclass(frozen=True)
class Instances:
    """The rows of `plan` are a rule's head, then the rows of its body's atoms, one behind the other."""

    relation: str
    width: int
    rule: str
    line: int
    atoms: tuple[Read, ...]
    plan: Plan


@dataclass(frozen=True)
class Step:
    """How many rows (of `plan`, one row) are left of a rule's body after one literal more, in words."""

    rule: str
    line: int
    literal: str
    plan: Plan


class Proofs:
    """The plans that tell why rows of one relation are there, or are not. `given`: the places of the columns that are known,
    whose values `seeds` has. Raises ViewError.
    """

    def __init__(
        self, checked: Checked, spec: ViewSpec, env: Environment, relation: str, given: Sequence[int], seeds: Plan
    ) -> None:
        self.checked = checked
        self.relation = relation
        self.given = tuple(given)
        self.context = Context(checked.context.program, spec, env, checked.context.source)
        question = Asked(relation, self.given, _VALUES, query_key(relation))

        def why_whole(name: str) -> str:
            return f"in its recursion {checked.counted[name].why}" if name in checked.counted else ""

        self.made = asked(question, checked.relations, checked.types, why_whole)
        strata_of = Strata.of({**checked.relations, **self.made.relations})
        first = next(iter(self.made.copies), "")
        self.copy = first if first.rpartition(" ")[0] == relation else None
        self.types = {**checked.types, **{c: checked.types[c.rpartition(" ")[0]] for c in self.made.copies}}
        self.bound = Relations(self.context, strata_of.relations, checked.counted)
        self.bound.plans[_VALUES] = (seeds, seeds.schema.names)
        self.rows = bound_plan(self.bound, strata_of, query_key(relation), env, {})

    def instances(self) -> Iterator[Instances]:
        """Those of every rule of a relation that is derived as far as it is asked for; of one that is taken whole only those of
        the rows that are asked about.
        """
        for copy in self.made.copies:
            name = copy.rpartition(" ")[0]
            for rule in self.bound.relations[copy].rules:
                yield self.instance(name, rule)
        if self.copy is None:
            for rule in self.checked.relations[self.relation].rules:
                yield self.instance(self.relation, self.asked_about(rule))

    def asked_about(self, rule: Rule) -> Rule:
        """The rule for the rows that are asked about."""
        kinds: Mapping[int, DataType] = {i: self.checked.types[self.relation][i] for i in self.given}
        begin, conditions = wanted_of(rule, _VALUES, kinds, self.types)
        return Rule(rule.head, (begin, *rule.body, *conditions), rule.text, rule.start)

    def instance(self, name: str, rule: Rule) -> Instances:
        """The rows of one rule with those of its body."""
        reader = Reader(self.context, variables_of(rule))
        body = Body(self.context, rule, self.bound.plans, reader, outside(rule, reader))
        state = body.bind(rule.body, State(One(), {}))
        kinds = self.checked.types[name]
        heads = [reader.bind(state, reader.read(a.value)) for a in rule.head.arguments if a.value is not None]
        exprs = [coerce.coerced(e, kind) for e, kind in zip(heads, kinds, strict=True)]
        atoms = []
        for atom, begin in body.joined_at:
            original = atom.name.rpartition(" ")[0] if atom.name in self.made.copies else atom.name
            if original == _VALUES or original.startswith("wanted "):
                continue
            columns = self.checked.types[original]
            reads = self.checked.relations[original].reads
            table = "" if reads is None else reads.table if reads.schema is None else f"{reads.schema}.{reads.table}"
            atoms.append(Read(original, len(columns), table))
            exprs += [ColumnRef(begin + i, state.plan.schema.columns[begin + i].type) for i in range(len(columns))]
        plan = Distinct(Project(state.plan, tuple(exprs), tuple(f"c{i}" for i in range(len(exprs)))))
        line = self.context.spec.place(rule.start)[0]
        return Instances(name, len(heads), rule.text, line, tuple(atoms), plan)

    def steps(self) -> Iterator[Step]:
        """Of each rule of the relation how many rows are left after each literal of its body, for the rows asked about."""
        text = self.context.program.text
        relations = self.checked.relations if self.copy is None else self.bound.relations
        for rule in relations[self.copy or self.relation].rules:
            whole = self.asked_about(rule)
            atoms = [x for x in rule.body if isinstance(x, Positive) and x.atom.name in self.bound.plans]
            rest = [x for x in whole.body[1:] if x not in atoms]
            wanted = [x for x in atoms if x.atom.name.startswith("wanted ")]
            atoms = [x for x in atoms if x not in wanted]
            taken: list[Literal] = [whole.body[0], *wanted]
            line = self.context.spec.place(rule.start)[0]
            waiting: list[Literal] = [*atoms, *rest]
            while waiting:
                found = next(((x, s) for x in waiting if (s := self.reached(whole, [*taken, x])) is not None), None)
                if found is None:
                    break
                literal, state = found
                waiting.remove(literal)
                taken.append(literal)
                count = Reduce(state.plan, (), (Aggregate("count", None, BIGINT),), ("n",))
                yield Step(rule.text, line, _written(text, literal), count)

    def reached(self, rule: Rule, literals: Sequence[Literal]) -> State | None:
        """The rows for which some literals of a rule hold; None where these do not bind all of their variables."""
        part = Rule(rule.head, tuple(literals), rule.text, rule.start)
        reader = Reader(self.context, variables_of(rule))
        body = Body(self.context, part, self.bound.plans, reader, outside(part, reader))
        try:
            return body.bind(part.body, State(One(), {}))
        except ViewError:
            return None


def _written(text: str, literal: Literal) -> str:
    """A literal as the program has it."""
    if isinstance(literal, Condition):
        pieces = literal.expression
        shown = text[pieces.start : pieces.end]
        return shown if pieces.pieces[0].start < pieces.end else "the head's values"
    sign = "!" if isinstance(literal, Negative) else ""
    return sign + text[literal.atom.start : literal.atom.end]


__all__ = ["Instances", "Proofs", "Read", "Step"]
