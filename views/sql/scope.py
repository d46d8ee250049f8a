"""Names in sight: the relations of a FROM clause and the columns each name may mean.

Always: positions are those of the concatenated row of the FROM clause's plan; `visible` is what `*` gives and what an
unqualified name may mean, in order, with a column merged by USING standing once. Called by the binder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.operators.top import Order
from headrace.engine.schema import Column, DataType

Bound = Callable[[Any], Expr]
"""What a binder of the query makes of an aggregate."""


@dataclass(frozen=True)
class Relation:
    """One item of FROM: its columns stand at `offset` and behind it.

    `key`: the positions of a base table's primary key. `missing`: an outer join may put NULLs in the place of its rows; `sure`: a
    column that is NULL only then. `fields`: the columns' names in the table's own type, where an alias renames them. `value`: a
    whole row of it is its single column, as for a function that returns single values. `place`: the column that numbers the rows
    of a function. `orders`: the order of a subquery's rows, by its columns. `row`: the name of its rows' type, where that is
    known and needs no schema. `table`: the table's full name, where no alias hides it.
    """

    alias: str
    columns: tuple[Column, ...]
    offset: int = 0
    key: frozenset[int] = frozenset()
    missing: bool = False
    sure: int | None = None
    fields: tuple[str, ...] = ()
    value: bool = False
    place: int | None = None
    orders: tuple[Order, ...] = ()
    row: str = ""
    table: str = ""

    def nullable(self) -> Relation:
        """This relation where it may be missing."""
        sure = self.sure if self.missing else next((i for i, c in enumerate(self.columns) if not c.nullable), None)
        columns = tuple(replace(c, nullable=True) for c in self.columns)
        return replace(self, columns=columns, missing=True, sure=sure)


def _numbered(relation: Relation) -> tuple[Order, ...]:
    return () if relation.place is None else (Order(relation.place, False, False),)


@dataclass(frozen=True)
class Scope:
    """The relations in sight. `visible`: (name, position) of what is seen without qualification.

    `outer`: the names of the query around this one, which are looked at where this one has no such name. `aggregating`:
    puts an aggregate over this query's rows, which stands in a query within, behind the row; its position there and type.
    `same`: whether the outer names are of the same FROM clause, before the parentheses of a join, and looked at with these.
    """

    relations: tuple[Relation, ...]
    visible: tuple[tuple[str, int], ...]
    outer: Scope | None = None
    aggregating: Callable[[Bound], tuple[int, DataType]] | None = None
    same: bool = False

    @classmethod
    def of(
        cls,
        alias: str,
        columns: tuple[Column, ...],
        key: Iterable[int] = (),
        fields: tuple[str, ...] = (),
        row: str = "record",
        table: str = "",
    ) -> Scope:
        """The scope of one relation."""
        visible = tuple((c.name, i) for i, c in enumerate(columns))
        return cls((Relation(alias, columns, 0, frozenset(key), fields=fields, row=row, table=table),), visible)

    @property
    def width(self) -> int:
        """The columns of the concatenated row."""
        return sum(len(r.columns) for r in self.relations)

    def column(self, position: int) -> Column:
        """The column at a position of the concatenated row."""
        for relation in self.relations:
            if position < relation.offset + len(relation.columns):
                return relation.columns[position - relation.offset]
        raise IndexError(position)

    def beside(self, right: Scope) -> Scope:
        """This scope and `right` after it, in one row."""
        by = self.width
        moved = (replace(r, offset=r.offset + by, key=frozenset(k + by for k in r.key)) for r in right.relations)
        visible = (*self.visible, *((n, p + by) for n, p in right.visible))
        return replace(self, relations=(*self.relations, *moved), visible=visible)

    def since(self, begin: int) -> Scope:
        """This scope where no name means a column before `begin`."""
        if not begin:
            return self
        relations = tuple(replace(r, alias="", table="") if r.offset < begin else r for r in self.relations)
        return replace(self, relations=relations, visible=tuple((n, p) for n, p in self.visible if p >= begin))

    def within(self, outer: Scope | None) -> Scope:
        """This scope inside the query whose names are `outer`."""
        return replace(self, outer=outer)

    def nullable(self) -> Scope:
        """This scope where any column may be NULL: on the right of a left join."""
        return replace(self, relations=tuple(r.nullable() for r in self.relations))

    def merged(self, places: Mapping[str, int], begin: int = 0) -> Scope:
        """After JOIN … USING: each of its names once, first of what stands from `begin` on, for the column at its place."""
        before = tuple((n, p) for n, p in self.visible if p < begin)
        rest = tuple((n, p) for n, p in self.visible if p >= begin and n not in places)
        return replace(self, visible=(*before, *places.items(), *rest))

    def widened(self, columns: tuple[Column, ...], alias: str = "", orders: tuple[Order, ...] = ()) -> Scope:
        """With columns behind the row that no name means without its alias, where it has one; `orders`: by which rows come."""
        return replace(self, relations=(*self.relations, Relation(alias, columns, self.width, orders=orders)))

    def find(self, name: str) -> tuple[int, ...]:
        """Positions that an unqualified name may mean: columns, or else the one column that is its relation's row."""
        columns = tuple(p for n, p in self.visible if n == name)
        return columns or tuple(r.offset for r in self.relations if r.value and r.alias == name)

    def arrival(self) -> tuple[Order, ...]:
        """In what order rows come, as far as that is known: those of functions, and of a subquery with an ORDER BY."""
        own = ((r.offset, o) for r in self.relations for o in (*r.orders, *_numbered(r)))
        return tuple(o._replace(column=o.column + offset) for offset, o in own)

    def relation(self, alias: str, schema: str | None = None) -> Relation | None:
        """The relation of that name or alias, or the table of that schema; None also where there are several."""
        found = self.relations_named(alias, schema)
        return found[0] if len(found) == 1 else None

    def relations_named(self, alias: str, schema: str | None = None) -> list[Relation]:
        """As `relation`: two schemas may have tables of one name."""
        full = f"{schema}.{alias}"
        return [r for r in self.relations if (r.alias == alias if schema is None else r.table == full)]

    def names(self) -> tuple[str, ...]:
        """Every column name in sight, for suggestions."""
        return tuple(n for n, _ in self.visible)
