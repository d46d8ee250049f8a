"""Why a row of a Datalog view is there, as a proof tree of least height, or why not, one level at a time.

Invariant: a tree's leaves are rows of tables and views, or of relations that are made whole; every other row stands above the
rows that its rule needs, none of which is as high as it. Called by the control door of a running sidecar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.engine.operators.expressions.core.ir import Literal
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_bound
from headrace.views.datalog.program import check_program
from headrace.views.datalog.proofs import Instances, Proofs, Read, Step
from headrace.views.errors import ViewError
from headrace.views.plan import One, Plan, Project
from headrace.views.questions import rests_on
from headrace.views.sql.coerce import UNKNOWN, cast
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import Source

Row = tuple[str | None, ...]
"""The texts of a row's values."""

MOST_INSTANCES = 200_000
"""Rows of rules that one explanation may look at."""


@dataclass(frozen=True)
class RowAsked:
    """What has to be asked to explain rows: `views[0]` holds these, the next ones the instances, the last ones the steps; `rest`
    are the views that those read."""

    relation: str
    columns: tuple[str, ...]
    views: tuple[CompiledView, ...]
    instances: tuple[Instances, ...]
    steps: tuple[Step, ...]
    rest: tuple[str, ...]


@dataclass(frozen=True)
class Proof:
    """A row, the rule that gives it, and the proofs of the rows of its body; without a rule it is a row of `source`."""

    relation: str
    row: Row
    rule: str = ""
    line: int = 0
    source: str = ""
    body: tuple[Proof, ...] = ()

    def json(self) -> dict[str, object]:
        """As the control door gives it."""
        found: dict[str, object] = {"relation": self.relation, "row": list(self.row)}
        if not self.rule:
            return {**found, "source": self.source}
        return {**found, "rule": self.rule, "line": self.line, "body": [b.json() for b in self.body]}


def ask_row(
    name: str, view: CompiledView, key: Sequence[str], catalog: Catalog, views: Mapping[str, CompiledView]
) -> RowAsked:
    """What to ask about the rows of a view of a program with a key: the values of its key's columns, or of all its columns.

    Raises ViewError.
    """
    program = view.spec.program
    if not program or " " in view.spec.relation:
        hint = "rows of relations that a Datalog program puts out have rules"
        raise ViewError(f"{view.name} is no relation of a program", hint=hint)
    spec = replace(view.spec, name=name, key=None, columns=(), indexes=())
    others = {n: v for n, v in views.items() if v.spec.program != program}
    env = Environment(catalog, others, name)
    checked = check_program(spec, env, {})
    if checked.errors:
        raise checked.errors[0]
    whole = tuple(range(len(view.schema.columns)))
    given = whole if len(key) == len(whole) else view.key or ()
    if len(key) != len(given) or not given:
        names = [view.schema.names[i] for i in view.key or whole]
        raise ViewError(f"a row of {view.name} is named by {', '.join(names)}", hint="give a value for each of these")
    kinds = checked.types[view.spec.relation]
    exprs = tuple(cast(Literal(text, UNKNOWN), kinds[i]) for text, i in zip(key, given, strict=True))
    seeds = Project(One(), exprs, tuple(f"v{i}" for i in given))
    proofs = Proofs(checked, spec, env, view.spec.relation, given, seeds)
    instances, steps = tuple(proofs.instances()), tuple(proofs.steps())
    plans: list[Plan] = [proofs.rows, *(i.plan for i in instances), *(s.plan for s in steps)]
    compiled = []
    rest: dict[str, None] = {}
    for place, plan in enumerate(plans):
        own = replace(spec, name=f"{name} {place}")
        made = compile_bound(Source(own, spec.sql, catalog), plan)
        read = rests_on(made, views)
        rest.update(dict.fromkeys(read))
        compiled.append(replace(made, reads=read))
    return RowAsked(view.spec.relation, view.schema.names, tuple(compiled), instances, steps, tuple(rest))


def explained(asked: RowAsked, rows: Sequence[Sequence[Row]]) -> dict[str, object]:
    """The answer: the proof of each row, or of each rule how far it came. `rows`: of each view that was asked.

    Raises ViewError.
    """
    goals, count = rows[0], len(asked.instances)
    if goals:
        known = _proved(asked.instances, rows[1 : 1 + count])
        trees = [_tree((asked.relation, tuple(row)), known).json() for row in sorted(goals, key=str)]
        return {"columns": list(asked.columns), "proofs": trees}
    missing: dict[tuple[int, str], list[tuple[str, int]]] = {}
    for step, found in zip(asked.steps, rows[1 + count :], strict=True):
        missing.setdefault((step.line, step.rule), []).append((step.literal, int(found[0][0] or 0) if found else 0))
    rules = []
    for (line, rule), steps in missing.items():
        before = "1"
        for literal, left in steps:
            if not left:
                rules.append({"rule": rule, "line": line, "fails_at": literal, "rows_before": int(before)})
                break
            before = str(left)
    return {"columns": list(asked.columns), "proofs": [], "missing": rules}


_Fact = tuple[str, Row]
_Known = dict[_Fact, tuple[Instances, tuple[tuple[Read, Row], ...]]]


def _proved(instances: Sequence[Instances], rows: Sequence[Sequence[Row]]) -> _Known:
    """Of each row that has a proof the last rule of one of least height."""
    if sum(map(len, rows)) > MOST_INSTANCES:
        reason = f"more than {MOST_INSTANCES} rows may be part of a proof"
        raise ViewError(reason, hint="name a row that rests on fewer, or all of its columns")
    derived = {i.relation for i in instances}
    edges = []
    for instance, found in zip(instances, rows, strict=True):
        for row in sorted(found, key=str):
            at = instance.width
            body: list[tuple[Read, Row]] = []
            for atom in instance.atoms:
                body.append((atom, tuple(row[at : at + atom.width])))
                at += atom.width
            edges.append(((instance.relation, tuple(row[: instance.width])), instance, tuple(body)))
    known: _Known = {}
    while edges:
        ready = [e for e in edges if all(a.relation not in derived or (a.relation, r) in known for a, r in e[2])]
        new: _Known = {}
        for head, instance, met in ready:
            if head not in known:
                new.setdefault(head, (instance, met))
        if not new:
            break
        known.update(new)
        edges = [e for e in edges if e[0] not in known]
    return known


def _tree(fact: _Fact, known: _Known) -> Proof:
    relation, row = fact
    found = known.get(fact)
    if found is None:
        return Proof(relation, row, source=f"relation {relation}")
    instance, body = found
    below = (Proof(a.relation, r, source=a.table) if a.table else _tree((a.relation, r), known) for a, r in body)
    return Proof(relation, row, instance.rule, instance.line, body=tuple(below))


__all__ = ["Proof", "RowAsked", "ask_row", "explained"]
