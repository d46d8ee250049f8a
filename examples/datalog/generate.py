"""Data for the examples of docs/datalog.md, as large as is wanted.

`python -m examples.datalog.generate NAME --size N [--seed S]` prints SQL that makes and fills the tables of one example: pipe it
into psql. The same size and seed give the same data.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping

Rows = set[tuple[int, ...]]
Tables = Mapping[str, tuple[tuple[str, ...], Rows]]
"""Of each table its columns and rows, all of whole numbers."""


def graph(rng: random.Random, nodes: int, edges: int) -> Rows:
    """Edges between nodes, drawn at random."""
    return {(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(edges)}


def tree(nodes: int, fan: int = 2) -> Rows:
    """Each node but the first with its parent."""
    return {(node, (node - 1) // fan) for node in range(1, nodes)}


def some(rng: random.Random, size: int, *ranges: int) -> Rows:
    """Rows of numbers below the ranges."""
    return {tuple(rng.randrange(r) for r in ranges) for _ in range(size)}


def closure(rng: random.Random, size: int) -> Tables:
    """A random graph with twice as many edges as nodes."""
    return {"edges": (("source", "target"), graph(rng, size, 2 * size))}


def shortest_paths(rng: random.Random, size: int) -> Tables:
    """A grid of roads, each in both directions, and a few depots."""
    side = max(int(size**0.5), 2)
    roads = {(x * side + y, z * side + w, rng.randint(1, 9)) for x in range(side) for y in range(side)
             for z, w in ((x + 1, y), (x, y + 1)) if z < side and w < side}  # fmt: skip
    roads |= {(b, a, length) for a, b, length in roads}
    return {"roads": (("a", "b", "length"), roads), "depots": (("place",), some(rng, 1 + size // 50, side * side))}


def same_generation(_: random.Random, size: int) -> Tables:
    """A tree."""
    return {"parents": (("child", "parent"), tree(size))}


def dataflow(rng: random.Random, size: int) -> Tables:
    """A sparse flow graph, in which some variables are null and some are checked."""
    return {
        "flow_edges": (("source", "target"), graph(rng, size, 2 * size)),
        "null_assignments": (("variable",), some(rng, 1 + size // 8, size)),
        "null_checks": (("variable",), some(rng, size // 10, size)),
    }


def aliases(rng: random.Random, size: int) -> Tables:
    """Assignments between pointers, some of which are dereferenced."""
    return {
        "pointer_assignments": (("target", "source"), graph(rng, size, size)),
        "dereferences": (("pointer", "expression"), graph(rng, size, size // 2)),
    }


def points_to(rng: random.Random, size: int) -> Tables:
    """A program of `size` variables: objects of ten classes in a tree, fields, and virtual calls."""
    few = max(size // 5, 3)
    return {
        "allocations": (
            ("variable", "object", "class"),
            {(rng.randrange(size), o, rng.randrange(10)) for o in range(few)},
        ),
        "assignments": (("target", "source"), graph(rng, size, size)),
        "stores": (("base", "field", "source"), some(rng, few, size, 4, size)),
        "loads": (("target", "base", "field"), some(rng, few, size, size, 4)),
        "classes": (("class", "parent"), tree(10)),
        "methods": (("class", "name", "method"), {(c, n, 10 * c + n) for c, n in some(rng, 12, 10, 3)}),
        "calls": (("site", "receiver", "name"), {(s, rng.randrange(size), rng.randrange(3)) for s in range(few)}),
        "actuals": (("site", "place", "variable"), {(s, 0, rng.randrange(size)) for s in range(few)}),
        "formals": (("method", "place", "variable"), {(m, 0, rng.randrange(size)) for m in range(100)}),
    }


def text_editor(rng: random.Random, size: int) -> Tables:
    """A text that is mostly typed on from the last character, now and then from another, of which a tenth is removed."""
    typed = {(i, i - 1 if rng.random() < 0.8 else rng.randrange(i)) for i in range(1, size)}
    return {
        "characters": (("id", "after"), typed),
        "removals": (("id",), {(i,) for i in range(1, size) if rng.random() < 0.1}),
    }


def medical_ontology(rng: random.Random, size: int) -> Tables:
    """Classes in a tree, with conjunctions, roles and a chain of roles."""
    return {
        "inclusions": (("a", "b"), tree(size, 3)),
        "conjunctions": (("a", "b", "c"), some(rng, size // 4, size, size, size)),
        "role_fillers": (("a", "role", "b"), some(rng, size // 3, size, 3, size)),
        "role_meanings": (("role", "a", "b"), some(rng, size // 4, 3, size, size)),
        "role_chains": (("first", "second", "whole"), {(0, 1, 2), (1, 1, 1)}),
    }


def company_control(rng: random.Random, size: int) -> Tables:
    """Companies whose hundred percent two to four others own."""
    shares: dict[tuple[int, int], int] = {}
    for company in range(1, size):
        left = 100
        for _ in range(rng.randint(1, 3)):
            part = rng.randint(0, left)
            shares[rng.randrange(size), company] = part
            left -= part
    return {"shares": (("owner", "company", "percent"), {(o, c, p) for (o, c), p in shares.items() if p})}


def bill_of_materials(rng: random.Random, size: int) -> Tables:
    """Parts that contain parts of higher numbers."""
    parts = {(w, w + rng.randint(1, 8)): rng.randint(1, 3) for w in range(size) for _ in range(2)}
    return {"parts": (("whole", "piece", "many"), {(w, p, n) for (w, p), n in parts.items()})}


def inheritance_of_roles(rng: random.Random, size: int) -> Tables:
    """Roles in a tree, people with some, actions that roles allow, and a few denials."""
    roles = max(size // 5, 3)
    return {
        "role_inherits": (("role", "other"), tree(roles, 3)),
        "role_members": (("person", "role"), some(rng, size, size, roles)),
        "role_actions": (("role", "action"), some(rng, roles, roles, 9)),
        "denials": (("person", "action"), some(rng, size // 10, size, 9)),
    }


EXAMPLES: Mapping[str, Callable[[random.Random, int], Tables]] = {
    f.__name__.replace("_", "-"): f
    for f in (closure, shortest_paths, same_generation, dataflow, aliases, points_to, text_editor, medical_ontology,
              company_control, bill_of_materials, inheritance_of_roles)
}  # fmt: skip
"""By the headings of the page, in lower case and with hyphens."""


def sql_of(tables: Tables) -> Iterator[str]:
    """The statements that make and fill the tables, a line each."""
    for name, (columns, rows) in tables.items():
        declared = ", ".join(f"{c} bigint NOT NULL" for c in columns)
        yield f"CREATE TABLE public.{name} ({declared}, PRIMARY KEY ({', '.join(columns)}));"
        yield f"COPY public.{name} FROM STDIN;"
        yield from ("\t".join(map(str, row)) for row in sorted(rows))
        yield "\\."


def main() -> None:
    """Prints one example's data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(EXAMPLES))
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    drawn = random.Random(given.seed)  # noqa: S311 (data, no secret)
    for line in sql_of(EXAMPLES[given.name](drawn, given.size)):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
