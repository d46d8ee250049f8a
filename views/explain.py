"""A compiled view explained: its plan as a tree of text or JSON, with the arrangements it keeps and who shares them.

Always: what is said of arrangements is what render asks of the dataflow: one a join side, by the join's key. Called by
the sidecar's `validate` and `status`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.engine.operators.expressions.core.ir import (
    Aggregate,
    Call,
    Case,
    Cast,
    Coalesce,
    ColumnRef,
    Expr,
    Literal,
)
from headrace.engine.schema import Column, Kind
from headrace.views.compile import CompiledView
from headrace.views.cost import costs
from headrace.views.expressions import base_name
from headrace.views.extreme_recursion import by_extremes
from headrace.views.join_graph import flat, own_key
from headrace.views.plan import (
    DeltaJoin,
    Distinct,
    Filter,
    Import,
    Join,
    LeftJoin,
    One,
    Plan,
    Project,
    Recursion,
    Reduce,
    Reference,
    Repeat,
    Scan,
    Semijoin,
    Spread,
    Top,
    Windowed,
)
from headrace.views.state_recursion import by_state
from headrace.views.traversal import children, walk


@dataclass(frozen=True)
class Arranged:
    """An arrangement that a plan keeps: `of` what (a table, or a hash of the sub-plan), by which columns.

    `own`: it is the table's own arrangement by its primary key, which costs nothing more.
    """

    of: str
    key: tuple[str, ...]
    own: bool
    digest: str

    def __str__(self) -> str:
        return f"{self.of} by ({', '.join(self.key)})"


def arrangements(plan: Plan) -> tuple[Arranged, ...]:
    """The arrangements of the joins of a plan, each once, in order of the tree."""
    found: dict[tuple[str, tuple[str, ...]], Arranged] = {}
    for _, node, _ in _tree(plan, 0):
        for arranged in _looked_up(node):
            found.setdefault((arranged.digest, arranged.key), arranged)
    return tuple(found.values())


def explain(view: CompiledView, others: Sequence[CompiledView] = ()) -> str:
    """The view's plan as indented text; arrangements that `others` use too are marked with their names."""
    key = "none: a multiset"
    if view.key is not None:
        names = ", ".join(view.schema.names[i] for i in view.key)
        key = (
            f"({names}), {'proved' if view.key_proved else 'checked while it runs'}"
            if names
            else "none: one row at most"
        )
    lines = [f"view {view.name}  key {key}  fingerprint {view.fingerprint[:12]}"]
    lines += [f"  {note}" for note in view.notes]
    shared = _sharing(view, others)
    for depth, node, text in _tree(view.plan, 1):
        lines.append("  " * depth + text)
        lines += ("  " * (depth + 1) + f"| {_note(arranged, shared)}" for arranged in _looked_up(node))
        if isinstance(node, Recursion):
            lines.append("  " * (depth + 1) + f"| {_followed(view, node)[1]}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Told:
    """A node of a plan in words, with the arrangements that it looks keys up in and the views that share each."""

    word: str
    text: str
    arranged: tuple[tuple[Arranged, tuple[str, ...]], ...]
    inputs: tuple[Told, ...]


def told(view: CompiledView, others: Sequence[CompiledView] = ()) -> Told:
    """The view's plan, for whoever shows it in their own way."""
    shared = _sharing(view, others)

    def of(plan: Plan) -> Told:
        marked = tuple((a, tuple(shared.get((a.digest, a.key), ()))) for a in _looked_up(plan))
        return Told(*_described(plan), marked, tuple(of(below) for below in _inputs(plan)))

    return of(view.plan)


def explain_json(view: CompiledView, others: Sequence[CompiledView] = ()) -> dict[str, object]:
    """The same as JSON: columns, key, plan (a tree), arrangements with `own` and `shared_with`."""
    shared = _sharing(view, others)
    return {
        "view": view.name,
        "fingerprint": view.fingerprint,
        "key": None if view.key is None else [view.schema.names[i] for i in view.key],
        "key_proved": view.key_proved,
        "columns": [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in view.schema.columns],
        "reads": sorted({_leaf_name(n) for n in walk(view.plan)} - {""}),
        "plan": _json(view.plan),
        "arrangements": [
            {"of": a.of, "key": list(a.key), "own": a.own, "shared_with": shared.get((a.digest, a.key), [])}
            for a in arrangements(view.plan)
        ],
        "recursions": [
            {"name": node.name, "strategy": strategy, "how": how}
            for node in dict.fromkeys(n for n in walk(view.plan) if isinstance(n, Recursion))
            for strategy, how in [_followed(view, node)]
        ],
        "costs": {name: cost._asdict() for name, cost in costs(view.plan).items()},
        "rules": list(view.rules),
        "notes": list(view.notes),
    }


def _followed(view: CompiledView, plan: Recursion) -> tuple[str, str]:
    """How changes of a recursion are followed: the strategy, and it in words."""
    how = view.spec.recursion
    found = by_state(plan) if not plan.free else "it stands in another recursion"
    if isinstance(found, str) and not isinstance(extremes := by_extremes(plan), str):
        found = extremes.extremes
    if how.strategy == "history":
        return "history", "every round is kept (history), as the view asks"
    if isinstance(found, str):
        return "history", f"every round is kept (history), for {found}"
    past = "where that is less work" if how.switch is None else f"past {how.switch:g} of a Bootstrap's work"
    words = {
        "auto": f"kept by state: changes are followed by Update, and {past} by Bootstrap",
        "update": "kept by state: changes are followed by Update",
        "bootstrap": "kept by state: changes are followed by Bootstrap",
    }
    return how.strategy, f"{words[how.strategy]}; of several workers one holds it"


def spelled(expr: Expr, columns: Sequence[Column]) -> str:
    """An expression in SQL's manner, over the named columns."""
    if isinstance(expr, ColumnRef):
        return columns[expr.index].name
    if isinstance(expr, Literal):
        if expr.value is None:
            return "NULL"
        quoted = isinstance(expr.value, str | bytes) and expr.type.kind is not Kind.NUMERIC
        return f"'{expr.value!s}'" if quoted else str(expr.value).lower()
    if isinstance(expr, Cast):
        inner = spelled(expr.arg, columns)
        return inner if expr.implicit else f"{inner}::{expr.type}"
    if isinstance(expr, Coalesce):
        return f"coalesce({', '.join(spelled(a, columns) for a in expr.args)})"
    if isinstance(expr, Case):
        whens = " ".join(f"WHEN {spelled(c, columns)} THEN {spelled(v, columns)}" for c, v in expr.whens)
        return f"CASE {whens} ELSE {spelled(expr.otherwise, columns)} END"
    return _call(expr, columns)


def _call(expr: Call, columns: Sequence[Column]) -> str:
    name, args = base_name(expr), [spelled(a, columns) for a in expr.args]
    if name in ("and", "or"):
        return "(" + f" {name.upper()} ".join(args) + ")" if name == "or" else " AND ".join(args)
    if name.startswith("is ") and len(args) == 1:
        return f"{args[0]} {name.upper()}"
    if name in ("in", "not in"):
        return f"{args[0]} {name.upper()} ({', '.join(args[1:])})"
    if len(args) == 2 and (not name[0].isalpha() or name in ("like", "ilike") or name.startswith("is ")):
        return f"{args[0]} {name} {args[1]}"
    return f"{name}({', '.join(args)})"


def _aggregate(aggregate: Aggregate, columns: Sequence[Column]) -> str:
    inner = "*" if aggregate.arg is None else spelled(aggregate.arg, columns)
    text = f"{aggregate.function}({'DISTINCT ' if aggregate.distinct else ''}{inner})"
    return text if aggregate.filter is None else f"{text} FILTER ({spelled(aggregate.filter, columns)})"


def _tree(plan: Plan, depth: int) -> Iterator[tuple[int, Plan, str]]:
    yield depth, plan, _line(plan)
    for child in _inputs(plan):
        yield from _tree(child, depth + 1)


def _inputs(plan: Plan) -> Sequence[Plan]:
    """What a node is made of: a delta join of its leaves, for there are no joins between."""
    return flat(plan.input).leaves if isinstance(plan, DeltaJoin) else children(plan)


def _looked_up(plan: Plan) -> Iterator[Arranged]:
    """The arrangements in which a node looks keys up."""
    if isinstance(plan, Join | LeftJoin | Semijoin):
        yield _arranged(plan.left, plan.left_key)
        yield _arranged(plan.right, plan.right_key)
    elif isinstance(plan, DeltaJoin):
        for part, key in flat(plan.input).arranged():
            yield _arranged(part, key)


def _line(plan: Plan) -> str:
    word, text = _described(plan)
    return f"{word} {text}".rstrip()


def _described(plan: Plan) -> tuple[str, str]:
    if isinstance(plan, Scan):
        return "Scan", plan.table
    if isinstance(plan, Import):
        return "Import", f"view {plan.view}"
    if isinstance(plan, Project):
        inputs = plan.input.schema.columns
        pairs = zip((spelled(e, inputs) for e in plan.exprs), plan.names, strict=True)
        return "Project", ", ".join(e if e == n else f"{e} AS {n}" for e, n in pairs)
    if isinstance(plan, Filter):
        return "Filter", spelled(plan.predicate, plan.input.schema.columns)
    if isinstance(plan, Join | LeftJoin | Semijoin):
        left, right = plan.left.schema.names, plan.right.schema.names
        keys = " AND ".join(f"{left[a]} = {right[b]}" for a, b in zip(plan.left_key, plan.right_key, strict=True))
        on = f"on {keys}" if keys else "of every pair"
        if isinstance(plan, Semijoin):
            return "Antijoin" if plan.negated else "Semijoin", on
        both = (*plan.left.schema.columns, *plan.right.schema.columns)
        rest = "" if plan.residual is None else f" where {spelled(plan.residual, both)}"
        return "Join" if isinstance(plan, Join) else "Full join" if plan.full else "Left join", f"{on}{rest}"
    if isinstance(plan, DeltaJoin):
        tree = flat(plan.input)
        equal = (" = ".join(tree.leaves[i].schema.names[c] for i, c in some) for some in tree.equal)
        return "Delta join", f"on {' AND '.join(equal)}"
    if isinstance(plan, Reduce):
        inputs = plan.input.schema.columns
        by = ", ".join(inputs[k].name for k in plan.key)
        return "Reduce", f"by ({by}): {', '.join(_aggregate(a, inputs) for a in plan.aggregates)}"
    if isinstance(plan, Top):
        return "Top", _top(plan)
    if isinstance(plan, Windowed):
        return "Window", _windowed(plan)
    if isinstance(plan, Spread):
        named = plan.input.schema.names
        made = ((f.function.partition("(")[0], ", ".join(named[a] for a in f.args)) for f in plan.functions)
        return "Spread", ", ".join(f"{name}({args})" for name, args in made)
    if isinstance(plan, Reference):
        return "Rows", f"of {plan.variable.name}"
    if isinstance(plan, Recursion):
        how = f"rounds count, for {plan.why}" if plan.why else "a fixpoint, for the term distributes"
        return "Recursion", f"{plan.name}: {how}"
    if isinstance(plan, One | Repeat):
        return ("One row", "") if isinstance(plan, One) else ("Repeat", f"{plan.input.schema.names[-1]} times")
    return ("Distinct", "") if isinstance(plan, Distinct) else ("Union", "all")


def _windowed(plan: Windowed) -> str:
    names = plan.schema.names
    functions = ", ".join(f"{f.name}({', '.join(names[a] for a in f.args)})" for f in plan.functions)
    orders = ", ".join(f"{names[o.column]}{' desc' if o.descending else ''}" for o in plan.orders)
    return f"{functions} of each ({', '.join(names[k] for k in plan.key)}){f' by {orders}' if orders else ''}"


def _top(plan: Top) -> str:
    names = plan.schema.names
    text = "all" if plan.limit is None else f"{plan.limit}{' and ties' if plan.ties else ''}"
    text += f" after {plan.offset}" if plan.offset else ""
    text += f" of each ({', '.join(names[k] for k in plan.key)})" if plan.key else ""
    orders = ", ".join(f"{names[o.column]}{' desc' if o.descending else ''}" for o in plan.orders)
    return f"{text} by {orders}" if orders else text


def _arranged(plan: Plan, key: tuple[int, ...]) -> Arranged:
    own = own_key(plan) == key
    core = plan
    while isinstance(core, Filter | Project):
        core = core.input
    schema, places = (core.schema, core.schema.key or ()) if own else (plan.schema, key)
    names = tuple(schema.columns[k].name for k in places)
    if isinstance(core, Scan):
        of = core.table if core is plan or own else f"part of {core.table}"
    elif isinstance(core, Import):
        of = f"view {core.view}" if core is plan else f"part of view {core.view}"
    else:
        of = f"{type(core).__name__.lower()} {plan.digest[:8]}"
    return Arranged(of, names, own, core.digest if own else plan.digest)


def _sharing(view: CompiledView, others: Sequence[CompiledView]) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for other in others:
        if other.name != view.name:
            for arranged in arrangements(other.plan):
                found.setdefault((arranged.digest, arranged.key), []).append(other.name)
    return found


def _note(arranged: Arranged, shared: dict[tuple[str, tuple[str, ...]], list[str]]) -> str:
    text = f"arranged: {arranged}"
    if arranged.own:
        text += ", the table's own"
    names = shared.get((arranged.digest, arranged.key))
    return f"{text}, shared with {', '.join(names)}" if names else text


def _leaf_name(plan: Plan) -> str:
    if isinstance(plan, Scan):
        return plan.table
    return plan.view if isinstance(plan, Import) else ""


def _json(plan: Plan) -> dict[str, object]:
    word, text = _described(plan)
    below = [_json(p) for p in _inputs(plan)]
    return {"node": word, "text": text, "columns": list(plan.schema.names), "digest": plan.digest[:12], "inputs": below}
