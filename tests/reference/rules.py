"""Naive twins of recursive rules: each computed anew from the edges, by going round until nothing is new.

Always: edges are pairs, as a set. Called by the tests of loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TypeVar

T = TypeVar("T")
Edge = tuple[int, int]
Edges = Set[Edge]


def settled(start: T, turn: Callable[[T], T]) -> T:
    """Where `turn` comes to rest."""
    while (found := turn(start)) != start:
        start = found
    return start


def reached(edges: Edges, roots: Iterable[int]) -> set[int]:
    """The roots and all nodes that a path leads to."""
    return settled(set(roots), lambda nodes: nodes | {b for a, b in edges if a in nodes})


def closure(edges: Edges) -> set[Edge]:
    """Pairs with a path of at least one edge."""
    return settled(set(edges), lambda pairs: pairs | {(a, d) for a, b in pairs for c, d in edges if b == c})


def one_way(edges: Edges) -> set[Edge]:
    """Pairs with a path, each beginning of which is such a pair, and no edge back."""

    def turn(pairs: set[Edge]) -> set[Edge]:
        longer = {(a, d) for a, b in pairs for c, d in edges if b == c}
        return {(a, b) for a, b in longer | set(edges) if (b, a) not in edges}

    return settled(set(), turn)


def same_generation(edges: Edges) -> set[Edge]:
    """Pairs of children of one parent, or of parents of one generation."""
    siblings = {(x, y) for p, x in edges for q, y in edges if p == q}
    return settled(siblings, lambda pairs: pairs | {(x, y) for a, x in edges for b, y in edges if (a, b) in pairs})


def components(edges: Edges) -> set[Edge]:
    """The edges whose ends reach each other."""
    pairs = closure(edges)
    return {(a, b) for a, b in edges if (b, a) in pairs}


def distances(edges: Edges, roots: Iterable[int]) -> set[Edge]:
    """Each node reached, with the least number of edges from a root."""
    found = dict.fromkeys(roots, 0)
    layer = list(found)
    while layer:
        step = found[layer[0]] + 1
        layer = [b for b in {b for a in layer for c, b in edges if c == a} if b not in found]
        found.update(dict.fromkeys(layer, step))
    return set(found.items())


def parities(edges: Edges, roots: Iterable[int]) -> tuple[set[int], set[int]]:
    """The nodes that paths of even length lead to, and of odd length."""

    def turn(pair: tuple[set[int], set[int]]) -> tuple[set[int], set[int]]:
        even, odd = pair
        return even | {b for a, b in edges if a in odd}, odd | {b for a, b in edges if a in even}

    return settled((set(roots), set()), turn)


def core(edges: Edges, degree: int) -> set[Edge]:
    """What is left when nodes with fewer than `degree` edges out are dropped, with their edges, again and again."""

    def turn(kept: set[Edge]) -> set[Edge]:
        rich = {a for a, _ in kept if sum(a == b for b, _ in kept) >= degree}
        return {(a, b) for a, b in kept if a in rich and b in rich}

    return settled(set(edges), turn)


def shortest(edges: Edges, roots: Iterable[int], count: int) -> set[Edge]:
    """Of each node the `count` least lengths of paths to it from a root."""

    def turn(found: set[Edge]) -> set[Edge]:
        lengths = {(root, 0) for root in roots} | {(b, n + 1) for a, b in edges for node, n in found if node == a}
        return {pair for pair in lengths if sum(node == pair[0] and n < pair[1] for node, n in lengths) < count}

    return settled(set(), turn)
