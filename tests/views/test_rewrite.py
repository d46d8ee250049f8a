"""Rewriting: what stands in several places of a plan stays one node under every rule."""

from __future__ import annotations

import pytest

from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema
from headrace.views.optimize import RULES, Rule, said_of
from headrace.views.plan import Filter, Join, LeftJoin, Plan, Project, Scan, Union
from headrace.views.rewrite import transform
from headrace.views.traversal import walk


def _twice() -> Union:
    a, b, c, d = (
        Scan(f"public.{n}", Schema((Column("id", BIGINT, False), Column("x", BIGINT), Column("y", BIGINT)), (0,)))
        for n in "abcd"
    )
    at = [ColumnRef(i, BIGINT) for i in range(12)]
    same = [Call("=(bigint,bigint)", (at[i], at[j]), BOOLEAN) for i, j in ((1, 3), (4, 6), (7, 9))]
    few = Call("<(bigint,bigint)", (at[2], Literal(5, BIGINT)), BOOLEAN)
    joined: Plan = Join(Join(Join(a, b), c), LeftJoin(d, a, (0,), (0,)))
    rows = Filter(joined, Call("and", (*same, few), BOOLEAN))
    shared = Project(rows, (at[2], at[5]), ("p", "q"))
    return Union((shared, shared))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_shared_node_stays_one(rule: Rule) -> None:
    plan: Plan = _twice()
    for each in RULES[: RULES.index(rule) + 1]:
        plan = each(plan)
        assert isinstance(plan, Union), said_of(each)
        assert plan.inputs[0] is plan.inputs[1], said_of(each)


def test_the_change_is_asked_once_of_a_shared_node_and_what_it_leaves_stays() -> None:
    plan, seen = _twice(), list[Plan]()

    def change(node: Plan) -> Plan:
        seen.append(node)
        # An equal node is no change.
        return Filter(node.input, node.predicate) if isinstance(node, Filter) else node

    assert transform(plan, change, Filter, Project) is plan
    # What the rule has no business with is not asked.
    assert [type(node) for node in seen] == [Filter, Project]


def test_a_changed_input_changes_all_that_stands_on_it_and_nothing_beside() -> None:
    plan = _twice()

    def change(node: Plan) -> Plan:
        return Join(node.left, node.right) if isinstance(node, LeftJoin) else node

    found = transform(plan, change, LeftJoin)
    whole = next(p for p in walk(plan) if isinstance(p, Join))
    now = next(p for p in walk(found) if isinstance(p, Join))
    assert LeftJoin not in found.kinds
    assert found != plan
    assert isinstance(now.right, Join)
    assert now.left is whole.left


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_kinds_are_those_of_all_that_stands_below(rule: Rule) -> None:
    plan = rule(_twice())
    for node in walk(plan):
        assert node.kinds == {type(p) for p in walk(node)}
