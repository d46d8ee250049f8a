"""SEARCH and CYCLE behind an item of WITH RECURSIVE: checked, and written out as Postgres's manual says, as columns of its terms.

A row's path holds the rows on the way to it, each as the text of some columns. CYCLE marks a row that is on its own path already,
and nothing follows it; SEARCH sorts by the path, or by how long it is and the row. Around the recursion such a column has
Postgres's type, record or record[]: it may be read, sorted by and cast, but no view puts it out. Called by `recursive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Cast, Expr
from headrace.engine.schema import TEXT, Column, DataType, Kind
from headrace.views.plan import Plan, Project, identity
from headrace.views.recursion import looks_different
from headrace.views.spec import ViewSpec
from headrace.views.sql.coerce import cast
from headrace.views.sql.parsing.nodes import Cycle, Search
from headrace.views.sql.parsing.parse import Source, name_of, parse
from headrace.views.yaml_models import nearest


class Added(NamedTuple):
    """A column that a clause adds: its name, and its expressions over the rows `s` of the first term and of the others. A column
    of Postgres's type record also names the columns of which a record is made; `deep`: it is an array of records.
    """

    name: str
    begin: str
    further: str
    records: tuple[str, ...] = ()
    deep: bool = False
    counted: bool = False


def check_recursive(source: Source, cte: exp.Expr, *, recursive: bool) -> None:
    """Raises ViewError for SEARCH or CYCLE of what is not recursive."""
    for clause in ("search", "cycle"):
        if cte.args.get(clause) is not None and not recursive:
            source.refuse(cte.args["alias"], "WITH query is not recursive", f"leave {clause.upper()} out")


def added_by(source: Source, cte: exp.Expr, columns: Sequence[Column]) -> tuple[Added, ...]:
    """The columns that the item's clauses add behind its own. Raises ViewError."""
    search: Search | None = cte.args.get("search")
    cycle: Cycle | None = cte.args.get("cycle")
    found: list[Added] = []
    names: list[tuple[exp.Expr, str]] = []
    if search is not None:
        by = _columns(source, search.expressions, columns, "search")
        found.append(_sequence(name_of(search.sequence), by, depth=search.depth))
        names.append((search.sequence, "search sequence"))
    if cycle is not None:
        by = _columns(source, cycle.expressions, columns, "cycle")
        row, path = _row(by), f"s.{_quoted(name_of(cycle.args['path']))}"
        further = f"case when {row} = any ({path}) then true else false end"
        found.append(Added(name_of(cycle.mark), "false", further))
        found.append(Added(name_of(cycle.path), f"array[{row}]", f"{path} || {row}", by, deep=True))
        names += [(cycle.mark, "cycle mark"), (cycle.path, "cycle path")]
    for at, (node, what) in enumerate(names):
        if name_of(node) in [c.name for c in columns]:
            reason = f'{what} column name "{name_of(node)}" already used in WITH query column list'
            source.refuse(node, reason, "give it another name")
        for other, that in names[:at]:
            if name_of(other) == name_of(node):
                reason = f"{that} column name and {what} column name are the same"
                source.refuse(node, reason, "give one of them another name")
    return tuple(found)


def _sequence(name: str, by: tuple[str, ...], *, depth: bool) -> Added:
    """The column that says the order: the rows on the way, or how many there are before this one."""
    if depth:
        return Added(name, f"array[{_row(by)}]", f"s.{_quoted(name)} || {_row(by)}", by, deep=True)
    before = f"split_part(substring(s.{_quoted(name)} from 2), ',', 1)::bigint"
    fields = "".join(f", s.{_quoted(c)}" for c in by)
    return Added(name, f"row(0::bigint{fields})::text", f"row({before} + 1{fields})::text", by, counted=True)


def _columns(source: Source, nodes: Sequence[exp.Expr], columns: Sequence[Column], what: str) -> tuple[str, ...]:
    """The names of a clause's columns. Raises ViewError for one that the query does not have, or whose texts do not say what is
    equal.
    """
    names = [c.name for c in columns]
    found: list[str] = []
    for node in nodes:
        name = name_of(node)
        if name not in names:
            hint = nearest(name, names)
            source.refuse(node, f'{what} column "{name}" not in WITH query column list', hint)
        if name in found:
            source.refuse(node, f'{what} column "{name}" specified more than once')
        found.append(name)
        kind = columns[names.index(name)].type
        if looks_different(kind):
            reason = f"{what.upper()} by a {kind} is not supported: its equal values may look different"
            source.refuse(node, reason, "keep the path in an array, and leave out what is on it in WHERE")
    return tuple(found)


def written_out(source: Source, name: str, cte: exp.Expr, terms: list[exp.Expr], columns: list[str],
                added: Sequence[Added]) -> list[exp.Expr]:  # fmt: skip
    """The two terms with the columns added. Raises ViewError for terms that these cannot be put into."""
    for side, term in zip(("left", "right"), terms, strict=True):
        if not isinstance(term.unnest(), exp.Select):
            source.refuse(term, f"with a SEARCH or CYCLE clause, the {side} side of the UNION must be a SELECT")
    step = terms[1].unnest().copy()
    read = _read_in(step, name)
    if read is None:
        reason = f'with a SEARCH or CYCLE clause, the recursive reference to WITH query "{name}" must be at the top level of its'
        source.refuse(terms[1], f"{reason} right-hand SELECT", "read it in FROM of the recursive term itself")
    if any(item.is_star for item in step.expressions):
        source.refuse(
            terms[1], "a * in a recursive term with SEARCH or CYCLE is not supported", "name the columns one by one"
        )
    for one in added:
        item = exp.Column(this=exp.to_identifier(one.name, quoted=True), table=read.copy())
        step.append("expressions", exp.Alias(this=item, alias=exp.to_identifier(one.name, quoted=True)))
    cycle: Cycle | None = cte.args.get("cycle")
    if cycle is not None:
        mark = exp.Column(this=exp.to_identifier(name_of(cycle.mark), quoted=True), table=read.copy())
        goes_on: exp.Expr = exp.NEQ(this=mark, expression=cycle.closed.copy())
        where = step.args.get("where")
        if where is not None:
            goes_on = exp.And(this=exp.Paren(this=where.this), expression=goes_on)
        step.set("where", exp.Where(this=goes_on))
    given = [*columns, *(one.name for one in added)]
    begin = _around(terms[0], columns, columns, [one.begin for one in added], cycle)
    return [begin, _around(step, columns, given, [one.further for one in added], cycle)]


def _around(term: exp.Expr, own: list[str], given: list[str], more: list[str], cycle: Cycle | None) -> exp.Expr:
    """SELECT own, more FROM (term) s(given); true and false stand for the mark's values."""
    listed = ", ".join([*(f"s.{_quoted(n)}" for n in own), *more])
    text = f"select {listed} from (select 1) s({', '.join(map(_quoted, given))})"  # noqa: S608 (quoted)
    _, query = parse(ViewSpec("cycle", text))
    for value in list(query.find_all(exp.Boolean)):
        assert cycle is not None, "a mark alone has truth values"
        value.replace((cycle.closed if value.this else cycle.other).copy())
    for node in query.walk():
        node.meta.pop("start", None)
    inner = query.find(exp.Subquery)
    assert inner is not None
    inner.set("this", term.copy())
    return query


def _read_in(step: exp.Expr, name: str) -> exp.Expr | None:
    """Under which name the SELECT reads the recursive query in its own FROM."""
    start = step.args.get("from_")
    items = [] if start is None else [start.this, *(join.this for join in step.args.get("joins") or ())]
    for item in items:
        bare = isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier) and item.args.get("db") is None
        if bare and name_of(item.this) == name:
            alias = item.args.get("alias")
            found: exp.Expr = item.this if alias is None or alias.this is None else alias.this
            return found
    return None


def with_records(plan: Plan, added: Sequence[Added]) -> Plan:
    """The rows of a recursion whose last columns are those added, which have Postgres's types from here on."""
    own, names = identity(plan.schema)
    first = len(own) - len(added)
    types = {c.name: str(c.type) for c in plan.schema.columns[:first]}
    exprs: list[Expr] = list(own)
    for at, one in enumerate(added, first):
        if one.records:
            fields = (*(("bigint",) if one.counted else ()), *(types[c] for c in one.records))
            kind = DataType(Kind.OTHER, name="record[]" if one.deep else "record", labels=fields)
            exprs[at] = Cast(cast(own[at], TEXT), kind)
    return Project(plan, tuple(exprs), names)


def _row(by: Sequence[str]) -> str:
    return f"row({', '.join(f's.{_quoted(c)}' for c in by)})::text"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
