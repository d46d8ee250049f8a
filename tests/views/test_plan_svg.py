"""The picture of a plan: well-formed, nothing outside of it, every box once, and what a change costs."""

from __future__ import annotations

import xml.etree.ElementTree as ET  # the picture is our own

from headrace.views.compile import CompiledView, compile_views
from headrace.views.cost import Cost, costs
from headrace.views.explain import Told, told
from headrace.views.plan_svg import picture
from headrace.views.spec import ViewSpec
from tests.views.shop import catalog

SVG = "{http://www.w3.org/2000/svg}"
THREE = (
    "select c.name, sum(p.amount) as paid from customers c join orders o on o.customer_id = c.id"
    " join payments p on p.order_id = o.id where c.vip and c.region <> '<&>\"' group by c.name"
)


def compiled() -> tuple[CompiledView, ...]:
    specs = [
        ViewSpec("three", THREE),
        ViewSpec(
            "two",
            "select l.qty, o.status, c.region from order_lines l join orders o on o.id = l.order_id"
            " join customers c on c.id = o.customer_id",
        ),
    ]
    return compile_views(specs, catalog())


def boxes(node: Told) -> int:
    return 1 + sum(boxes(below) for below in node.inputs)


def test_every_node_is_a_box_within_the_picture() -> None:
    three, two = compiled()
    root = ET.fromstring(picture(three, [two]))
    width, height = (float(root.attrib[k]) for k in ("width", "height"))
    groups = root.findall(f"{SVG}g")
    assert len(groups) == boxes(told(three))
    drawn = [[float(g[1].attrib[k]) for k in ("x", "y", "width", "height")] for g in groups]
    assert all(x >= 0 and x + w <= width and y >= 0 and y + h <= height for x, y, w, h in drawn)
    for k, (x, y, w, h) in enumerate(drawn):
        for other_x, other_y, other_w, other_h in drawn[:k]:
            apart = x + w <= other_x or other_x + other_w <= x or y + h <= other_y or other_y + other_h <= y
            assert apart, "boxes do not lie upon one another"
    assert "Delta join" in "".join(root.itertext())
    assert {r.attrib["class"] for r in root.iter(f"{SVG}rect")} == {"box", "leaf", "own", "shared", "arranged"}


def test_the_cost_of_a_change_follows_from_the_plan() -> None:
    three, two = compiled()
    assert costs(two.plan) == {
        "public.customers": Cost(4, 1),
        "public.order_lines": Cost(2, 2),
        "public.orders": Cost(3, 2),
    }
    assert costs(three.plan) == {
        "public.customers": Cost(4, 2),
        "public.orders": Cost(4, 3),
        "public.payments": Cost(3, 3),
    }
    assert [rule.split(":")[0] for rule in three.rules][-1] == "delta_joins"
