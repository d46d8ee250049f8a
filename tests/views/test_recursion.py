"""Recursive queries: which are fixpoints, what explain says of them, and that one that does not end is in error until it does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.engine.batch.exchange_codec import Message
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.shard import Shard
from headrace.views.compile import CompiledView, compile_views
from headrace.views.cost import costs
from headrace.views.explain import explain, explain_json
from headrace.views.lineage import columns_named
from headrace.views.plan import Recursion
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from headrace.views.traversal import walk
from headrace.views.view_files import load
from headrace.views.view_models import RecursionModel
from headrace.views.yaml_models import ConfigError
from tests.oracle.test_views import Change, Shop, images, upserts
from tests.views.shop import TABLES, catalog, schema_of

EDGES = "orders o on o.customer_id = t.n"
START = "with recursive t(n) as (select id from customers where vip"


def compiled(sql: str, **more: int) -> CompiledView:
    [view] = compile_views([ViewSpec("v", sql, **more)], catalog())  # type: ignore[arg-type]
    return view


def why(step: str, word: str = "union all") -> str:
    """What keeps a recursive query from being a fixpoint."""
    view = compiled(f"{START} {word} {step}) select n from t")
    return next(p.why for p in walk(view.plan) if isinstance(p, Recursion))


@pytest.mark.parametrize(
    "step",
    [
        f"select o.id from t join {EDGES}",
        f"select o.id from t left join {EDGES} where o.id > 1",
        "select x from t, generate_series(1, t.n) x where x < 3",
        "select n from t where n in (select id from orders)",
        "select n from t where not exists (select 1 from orders where customer_id = n)",
        f"(with x as (select n from t where n > 2) select o.id from x t join {EDGES})",
    ],
)
def test_terms_that_distribute_are_fixpoints(step: str) -> None:
    assert why(step) == ""
    assert why(step, "union") == ""


@pytest.mark.parametrize(
    ("step", "held"),
    [
        ("(select n from t order by n limit 1)", "DISTINCT ON or LIMIT"),
        ("select distinct n from t", "DISTINCT"),
        ("select n from t group by n", "groups"),
        ("select max(n) from (select n from t) s", "groups"),
        ("select row_number() over (order by n) from t", "a window function"),
        ("(select n from t union all select id from orders)", "a UNION with rows of other tables"),
        ("(with x as (select n from t) select a.n from x a, x b)", "a join of the recursion with itself"),
        (
            "(with recursive u as (select n from t union select n + 1 from u where n < 4) select n from u)",
            "a recursion",
        ),
    ],
)
def test_of_every_other_term_rounds_count(step: str, held: str) -> None:
    assert why(step) == f"the term holds {held}"


def test_copies_do_not_count_in_a_set() -> None:
    assert why("select distinct n + 1 from t where n < 5", "union") == ""
    assert why("select distinct n + 1 from t where n < 5") != ""


def test_equal_values_that_look_different_are_of_the_earliest_round() -> None:
    sql = "with recursive t(x) as (select 1.0 union select x + 0.50 from t where x < 3) select x from t"
    assert "the rounds count" not in explain(compiled(sql))
    assert "rounds count, for equal values of x may look different" in explain(compiled(sql))


def test_explain_costs_and_lineage_know_it() -> None:
    view = compiled(f"{START} union select o.id from t join {EDGES}) select n from t")
    assert "Recursion t: a fixpoint, for the term distributes" in explain(view)
    assert "Rows of t" in explain(view)
    assert set(costs(view.plan)) == {"public.customers", "public.orders"}
    named = columns_named([view])["v"]
    assert {("public.customers", "vip"), ("public.orders", "customer_id"), ("public.orders", "id")} <= named
    assert view.key is not None


def test_what_nothing_reads_is_not_in_the_plan() -> None:
    view = compiled("with recursive idle(x) as (select 1 union all select x + 1 from idle) select id from orders")
    assert not any(isinstance(p, Recursion) for p in walk(view.plan))


def order(number: int, customer: int) -> Change:
    return Change("orders", None, (str(number), str(customer), "open", None, None, None, None))


def test_one_that_does_not_end_is_in_error_until_it_does() -> None:
    view = compiled(f"{START} union all select o.id from t join {EDGES}) select n from t", rounds=40)
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    output = render(view, flow, {}).output("v")
    closing = order(1, 2)
    steps: list[tuple[str, list[Change]]] = [
        ("customers", [Change("customers", None, ("1", "x", None, None, None, "t"))]),
        ("orders", [order(2, 1)]),
        ("orders", [closing]),
        ("orders", [Change("orders", closing.new, None)]),
    ]
    errors: list[list[str]] = []
    for epoch, (table, changes) in enumerate(steps):
        flow.push(f"public.{table}", upserts(table, [(epoch, c) for c in changes]))
        flow.step(epoch + 1)
        _, bad = output.snapshot(epoch)
        errors.append([str(row["error"]) for row in bad.rows.to_pylist()])
    assert errors[0] == errors[1] == errors[3] == []
    [error] = errors[2]
    assert error.startswith(
        'recursive query "t" did not end within 40 rounds: 42 rows so far, 1 of them in the last; bound it'
    )
    rows, _ = output.snapshot(3)
    assert sorted(images(rows, view.schema)) == [(("1",), 3, 1), (("2",), 3, 1)]


def test_one_with_too_many_rows_is_in_error_and_others_go_on() -> None:
    """Twice as many rows a round: without the limit this would be 2^10000 rows."""
    endless = f"{START} union all select x from t, generate_series(t.n, t.n + 1) x where t.n > 0) select n from t"
    working = (
        f"{START} union all (select x from (select distinct n from t) d, generate_series(n, 3 * n) x)) select n from t"
    )
    views = compile_views(
        [
            ViewSpec("v", endless, rows=5_000),
            ViewSpec("w", working, rows=400),
            ViewSpec("good", "select id from customers"),
            ViewSpec("reader", "select count(*) as n from v"),
        ],
        catalog(),
    )
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    rendered: dict[str, Collection] = {}
    outputs = {}
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.name] = rendered[view.name].output(view.name)
    customer = Change("customers", None, ("1", "x", None, None, None, "t"))
    for epoch, change in enumerate((customer, Change("customers", customer.new, None))):
        flow.push("public.customers", upserts("customers", [(epoch, change)]))
        flow.step(epoch + 1)
        errors = {name: output.snapshot(epoch)[1].rows.column(0).to_pylist() for name, output in outputs.items()}
        assert errors["good"] == []
        if epoch:
            assert errors == {"v": [], "w": [], "good": [], "reader": []}
            assert [
                row for row, _, n in images(outputs["v"].snapshot(epoch)[0], views[0].schema) for _ in range(n)
            ] == []
            continue
        assert errors["v"] == errors["reader"]
        [said] = errors["v"]
        assert said.startswith(
            'recursive query "t" comes to more than 5000 rows: 4095 rows so far in round 12, which brings 4096'
        )
        assert "as (1); (10); (11); bound it in WHERE" in said
        assert "limits.rows" in said
        [said] = errors["w"]
        assert said.startswith('recursive query "t" comes to more than 400 rows')


def test_as_many_rounds_as_are_allowed_are_enough() -> None:
    sql = "with recursive t(n) as (select 1 union all select n + 1 from t where n < 9) select n from t"
    for rounds, ends in ((7, False), (8, True), (9, True)):
        flow = Dataflow()
        output = render(compiled(sql, rounds=rounds), flow, {}).output("v")
        flow.step(1)
        assert (len(output.snapshot(0)[1]) == 0) is ends, rounds


def test_limits_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "v.yaml"
    text = "version: 1\nviews:\n  - name: v\n    sql: select id from orders\n    limits: {rounds: ROUNDS}\n"
    path.write_text(text.replace("ROUNDS", "70"))
    assert load(path)[0].rounds == 70
    path.write_text(text.replace("ROUNDS", "70, rows: 900"))
    assert (load(path)[0].rounds, load(path)[0].rows) == (70, 900)
    path.write_text(text.replace("ROUNDS", "0"))
    with pytest.raises(ConfigError):
        load(path)


THROUGH = "the rows of the recursion go through"
STEP = f"select o.id from t join {EDGES}"


def followed(step: str, word: str = "union", **recursion: object) -> str:
    """What explain says of how a recursion's changes are followed."""
    spec = ViewSpec("v", f"{START} {word} {step}) select n from t", recursion=RecursionModel(**recursion))  # type: ignore[arg-type]
    [view] = compile_views([spec], catalog())
    [line] = [line for line in explain(view).splitlines() if "history" in line or "kept by state" in line]
    [told] = explain_json(view)["recursions"]  # type: ignore[misc]
    assert told["how"] in line
    return line.strip()


def test_explain_says_how_changes_are_followed() -> None:
    rest = "; of several workers one holds it"
    assert followed(STEP, "union all") == followed(STEP)
    assert followed(STEP).endswith(f"Update, and where that is less work by Bootstrap{rest}")
    assert "past 1.5 of a Bootstrap's" in followed(STEP, switch=1.5)
    assert followed(STEP, strategy="update").endswith(f"followed by Update{rest}")
    assert followed(STEP, strategy="bootstrap").endswith(f"followed by Bootstrap{rest}")
    assert followed(STEP, strategy="history").endswith("(history), as the view asks")


@pytest.mark.parametrize(
    ("step", "word", "why"),
    [
        (f"select distinct o.id from t join {EDGES}", "union all", "its rounds count"),
        ("select n from t group by n", "union", "its rounds count"),
        ("select x from t, generate_series(1, t.n) x where x < 3", "union", f"{THROUGH} a set-returning function"),
        ("select o.id from t join orders o on o.customer_id = t.n + 1", "union", "rows are joined by a computed value"),
        (f"select o.id from t left join {EDGES} and o.id > t.n", "union", f"{THROUGH} an outer join"),
    ],
)
def test_a_recursion_whose_rounds_are_kept_says_why(step: str, word: str, why: str) -> None:
    assert followed(step, word).startswith(f"| every round is kept (history), for {why}")


def test_views_choose_how_changes_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "views.yaml"
    file.write_text(
        "version: 1\nviews:\n  - name: v\n    sql: select 1 as a\n    recursion: {strategy: update, switch: 0.5}\n"
    )
    assert load(file)[0].recursion == RecursionModel(strategy="update", switch=0.5)
    file.write_text("version: 1\nviews:\n  - name: v\n    sql: select 1 as a\n    recursion: {strategy: elastic}\n")
    with pytest.raises(ConfigError, match="strategy"):
        load(file)


@pytest.mark.parametrize("strategy", ["auto", "update", "bootstrap", "history"])
def test_views_come_and_go_and_restart_with_each_strategy(strategy: str) -> None:
    spec = ViewSpec("v", f"{START} union {STEP}) select n from t", recursion=RecursionModel(strategy=strategy))  # type: ignore[arg-type]
    [view] = compile_views([spec], catalog())
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    shop = Shop(random.Random(5))
    kept = []
    for epoch in range(30):
        for change in shop.transaction():
            flow.push(f"public.{change.table}", upserts(change.table, [(epoch, change)]))
        flow.step(epoch + 1)
        flow.advance_since(epoch)
        if len(kept) < 4 and epoch % 5 == 2:
            # The later ones are made of what stands.
            kept.append(render(view, flow, {}).output(f"v{epoch}"))
        shown = [images(output.snapshot(epoch)[0], view.schema) for output in kept]
        assert all(one == shown[0] for one in shown)
        if epoch == 15:
            flow.drop(kept.pop())
        if epoch == 20:
            held = {name: arranged.spine.batches() for name, arranged in flow.arrangements().items()}
            flow = Dataflow()
            flow.restore(epoch + 1, held)
            for table in TABLES:
                flow.table(f"public.{table}", schema_of(table))
            kept = [render(view, flow, {}).output("again")]
            assert images(kept[0].snapshot(epoch)[0], view.schema) == shown[0]
        if epoch > 2:
            assert {int(row[0]) for row, _, _ in shown[0]} == _reached(shop)


def _reached(shop: Shop) -> set[int]:
    """What the rows' own loop finds."""
    ids = {name: list(TABLES[name][0]) for name in ("customers", "orders")}
    customers = [dict(zip(ids["customers"], row, strict=True)) for row in shop.rows["customers"]]
    orders = [dict(zip(ids["orders"], row, strict=True)) for row in shop.rows["orders"]]
    found = {int(c["id"]) for c in customers if c["vip"] in ("true", "t")}
    while True:
        more = {int(o["id"]) for o in orders if o["customer_id"] is not None and int(o["customer_id"]) in found} - found
        if not more:
            return found
        found |= more


def test_several_shards_keep_a_recursion_by_state_too() -> None:
    """By the same plan; what of it reads tables is sent to the shard that holds it."""

    class Nobody:
        """A port that nothing is sent through."""

        def exchange(self, out: Sequence[Message]) -> Sequence[Message]:
            """Never called: nothing is stepped."""
            raise AssertionError(out)

    view = compiled(f"{START} union {STEP}) select n from t")
    kinds = []
    for shard in (Shard(), Shard(0, 2, Nobody())):
        flow = Dataflow(shard)
        nodes = reachable([render(view, flow, {}).node])
        kinds.append({type(node).__name__ for node in nodes} & {"RecursiveNode", "OutermostLoopNode", "GatherNode"})
    assert kinds == [{"RecursiveNode"}, {"RecursiveNode", "GatherNode"}]
