"""What recursive programs are measured on: relations drawn at random, and the epochs in which they change.

Always: a number is drawn by numpy from a fixed seed, so that a size and a seed give the same data; a change takes out facts
that are there and puts in facts that were not, of the same kind. Called by the benches of recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.bench.peers.columns import write
from tests.bench.peers.programs import COLUMNS

Facts = npt.NDArray[np.int64]
"""int64[facts, columns], each once."""
HELD_OUT = 0.1
"""The part of a relation's facts that is not there at first."""

MODULE, FIELDS, FAR = 32, 4, 0.02
"""Variables of a module and fields of an object in points-to, and the part of its assignments that go from module to module."""


def unique(*columns: npt.NDArray[Any]) -> Facts:
    """Facts, each once, in an order of their own."""
    found = np.unique(np.stack(columns, 1).astype(np.int64), axis=0)
    return found[np.random.default_rng(5).permutation(len(found))]


@dataclass
class Relation:
    """The facts that there may be. `grows`: they come in their order, and none goes."""

    facts: Facts
    grows: bool = False


Data = Mapping[str, Relation]


def random_graph(size: int) -> Data:
    """Twice as many edges between nodes as there are nodes."""
    random = np.random.default_rng(17)
    return {"edge": Relation(unique(*random.integers(0, size, (2, 2 * size))))}


def tree(size: int) -> Data:
    """A binary tree, edges from parents to children."""
    children = np.arange(1, size)
    return {"edge": Relation(unique((children - 1) // 2, children))}


def chain(size: int) -> Data:
    """Each node before the next."""
    return {"edge": Relation(unique(np.arange(size - 1), np.arange(1, size)))}


def grid(side: int) -> Data:
    """Nodes in a square, edges to the right and down."""
    nodes = np.arange(side * side).reshape(side, side)
    right = np.stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()])
    down = np.stack([nodes[:-1].ravel(), nodes[1:].ravel()])
    return {"edge": Relation(unique(*np.concatenate([right, down], 1)))}


def reach(size: int) -> Data:
    """A root before a chain."""
    return {
        "root": Relation(np.zeros((1, 1), np.int64)),
        "edge": Relation(np.stack([np.arange(size - 1), np.arange(1, size)], 1)),
    }


def points_to(size: int) -> Data:
    """About `size` facts of a program in modules of MODULE variables: allocations, assignments, loads and stores of four fields,
    of which FAR assign from a variable of another module. So what a variable may point to is a part of the program, as in
    programs; over variables at random it soon is most of it, and the answer grows with the square of the facts."""
    random = np.random.default_rng(19)
    modules = max(size // 2 // MODULE, 1)

    def some(share: float, *ranges: int, far: float = 0.0) -> Relation:
        """Facts of which each variable, and object, is of one module; numbers below 5 are fields."""
        count = int(size * share)
        home = random.integers(0, modules, count)
        columns = [random.integers(0, r, count) + (home * r if r > FIELDS else 0) for r in ranges]
        away = random.random(count) < far
        columns[-1][away] = random.integers(0, modules * ranges[-1], int(away.sum()))
        return Relation(unique(*columns))

    return {
        "new": some(0.2, MODULE, MODULE // 5),
        "assign": some(0.5, MODULE, MODULE, far=FAR),
        "load": some(0.15, MODULE, MODULE, FIELDS),
        "store": some(0.15, MODULE, FIELDS, MODULE),
    }


def ontology(size: int) -> Data:
    """`size` classes below each other, with conjunctions, roles, what fills them and what that means, and two chains."""
    random = np.random.default_rng(23)
    children = np.arange(1, size)

    def some(share: float, *ranges: int) -> Relation:
        return Relation(unique(*(random.integers(0, r, int(size * share)) for r in ranges)))

    return {
        "includes": Relation(unique(children, (children - 1) // 3)),
        "both": some(0.25, size, size, size),
        "filled": some(0.3, size, 3, size),
        "means": some(0.25, 3, size, size),
        "chain": Relation(np.array([[0, 1, 2], [1, 1, 1]])),
    }


def editor(size: int) -> Data:
    """A text of `size` characters, typed mostly after the one before, of which a tenth is removed; both grow."""
    random = np.random.default_rng(29)
    ids = np.arange(1, size)
    after = np.where(random.random(size - 1) < 0.8, ids - 1, (random.random(size - 1) * ids).astype(np.int64))
    gone = np.flatnonzero(random.random(size) < 0.1)[1:]
    return {
        "typed": Relation(np.stack([ids, after], 1), grows=True),
        "removed": Relation(gone.reshape(-1, 1), grows=True),
    }


class Changes:
    """Relations as they change; writes each epoch's changes. `whole`: all facts are there at first.

    `there`: of each relation which facts are. Single writer: the bench that asks for the next epochs.
    """

    def __init__(self, path: Path, data: Data, seed: int = 31, *, whole: bool = False) -> None:
        self._path = path
        self._data = data
        self._random = np.random.default_rng(seed)
        self._epoch = 1
        self.there: dict[str, npt.NDArray[np.bool_]] = {}
        for name, relation in data.items():
            count = len(relation.facts)
            kept = count if whole or count < 10 else int(count * (1 - HELD_OUT))
            self.there[name] = np.arange(count) < kept

    @property
    def size(self) -> int:
        """How many facts are there."""
        return sum(int(there.sum()) for there in self.there.values())

    def first(self) -> Path:
        """All that are there, as the first epoch."""
        for name, relation in self._data.items():
            self._write(name, [relation.facts[self.there[name]]], [1], [0])
        return self._path

    def next(self, size: int) -> Path:
        """An epoch of about `size` changes, half of them in and half out, spread over the relations as their facts are."""
        total = sum(len(relation.facts) for relation in self._data.values())
        shares = {name: size * len(r.facts) / total for name, r in self._data.items()}
        most = max(shares, key=lambda name: shares[name])
        for name in self._data:
            share = int(shares[name])
            if name == most:
                share = size - sum(int(s) for n, s in shares.items() if n != most)
            self._change(name, share)
        self._epoch += 1
        return self._path

    def take_out(self, name: str, at: Sequence[int]) -> Path:
        """Some facts of a relation leave, each in an epoch of its own."""
        for other, relation in self._data.items():
            self._write(
                other,
                [relation.facts[[k]] for k in at] if other == name else [],
                [-1] * len(at),
                range(self._epoch, self._epoch + len(at)),
            )
        self.there[name][list(at)] = False
        self._epoch += len(at)
        return self._path

    def put_back(self, name: str, at: Sequence[int]) -> Path:
        """Facts of a relation come again, all in one epoch."""
        for other, relation in self._data.items():
            some = [relation.facts[list(at)]] if other == name else []
            self._write(other, some, [1], [self._epoch])
        self.there[name][list(at)] = True
        self._epoch += 1
        return self._path

    def _change(self, name: str, size: int) -> None:
        relation, there = self._data[name], self.there[name]
        here, away = np.flatnonzero(there), np.flatnonzero(~there)
        if relation.grows:
            come, gone = away[: max(size // 2, 1)], away[:0]
        else:
            # One change alone is one out and one in by turns.
            half = size // 2 + (size % 2 if self._epoch % 2 else 0)
            gone = self._random.choice(here, min(half, len(here)), replace=False)
            come = self._random.choice(away, min(size - half, len(away)), replace=False)
        there[gone], there[come] = False, True
        self._write(name, [relation.facts[gone], relation.facts[come]], [-1, 1], [self._epoch] * 2)

    def _write(self, name: str, parts: Sequence[Facts], diffs: Sequence[int], epochs: Sequence[int]) -> None:
        width = self._data[name].facts.shape[1]
        facts = np.concatenate([*parts, np.empty((0, width), np.int64)])
        sizes = np.array([len(part) for part in parts], np.int64)
        lanes = {COLUMNS[k]: facts[:, k] for k in range(width)}
        diff, epoch = (np.repeat(np.array(v[: len(parts)], np.int64), sizes) for v in (list(diffs), list(epochs)))
        write(self._path.with_name(f"{self._path.name}-{name}"), **lanes, diff=diff, epoch=epoch)


Generator = Callable[[int], Data]
GENERATORS: Mapping[str, Generator] = {
    "closure": random_graph,
    "generation": tree,
    "reach": reach,
    "points_to": points_to,
    "ontology": ontology,
    "editor": editor,
}
