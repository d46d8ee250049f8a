"""Naive twins of what asks whether rows have partners, or how often they are there. Called by the dataflow's tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headrace.engine.schema import BIGINT, Column, Schema
from tests.reference.dataflow import Content, NaiveAggregate, Row, Twin, least_key, meets


def _added(left: Content, right: Content) -> Counter[str]:
    errors = Counter(left[1])
    errors.update(right[1])
    return errors


def partners(left: Twin, right: Twin, lk: Sequence[int], rk: Sequence[int], *, among: bool) -> Twin:
    """The rows of `left` whose key is (`among`) or is not among those of `right`; NULL equals nothing."""
    kinds = [left.schema.columns[k].type for k in lk]

    def key(row: Row, at: Sequence[int]) -> Row:
        return tuple(meets(row[k], kind) for k, kind in zip(at, kinds, strict=True))

    def at(epoch: int) -> Content:
        one, two = left.at(epoch), right.at(epoch)
        known = {k for k in (key(row, rk) for row in two[0]) if None not in k}
        kept = Counter({row: n for row, n in one[0].items() if (key(row, lk) in known) == among})
        return kept, _added(one, two)

    return Twin(Schema(left.schema.columns), at)


def left_join(left: Twin, right: Twin, lk: Sequence[int], rk: Sequence[int]) -> Twin:
    """Pairs, and rows of `left` alone; both halves say the errors."""
    columns = [replace(c, nullable=True) for c in right.schema.columns]
    schema = Schema((*left.schema.columns, *columns))
    pairs, alone = left.join(right, lk, rk), partners(left, right, lk, rk, among=False)

    def at(epoch: int) -> Content:
        rows = Counter(pairs.at(epoch)[0])
        for row, n in alone.at(epoch)[0].items():
            rows[row + (None,) * len(columns)] += n
        return rows, _added(pairs.at(epoch), alone.at(epoch))

    return Twin(schema, at)


def at_least(source: Twin, copies: int) -> Twin:
    """Rows that are equal count together, and the least image stands for them."""
    kinds = [c.type for c in source.schema.columns]

    def at(epoch: int) -> Content:
        rows, errors = source.at(epoch)
        groups: dict[Row, Counter[Row]] = {}
        for row, n in rows.items():
            groups.setdefault(tuple(map(meets, row, kinds)), Counter())[row] += n
        shown = [least_key(list(g), kinds) for g in groups.values() if sum(g.values()) >= copies]
        return Counter(shown), errors

    return Twin(Schema(source.schema.columns), at)


def count(source: Twin) -> Twin:
    """Each row with its multiplicity."""
    columns = source.schema.columns
    schema = Schema((*columns, Column("count", BIGINT, nullable=False)))
    return source.reduce(range(len(columns)), [NaiveAggregate("count", None)], schema)
