"""What a script's statements change in its Postgres, read out of Postgres itself: for each table the rows that went and
the rows that came, as text.

Always: what was given adds up to what the tables hold, in the session's own view, inside an open transaction too. A row's
version is told by its ctid and xmin, and only versions newer than the last look are read; the tables that a transaction
wrote are told by the locks it holds. Called by the script's run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.connectors.formats.encodings import declared_precision
from headrace.engine.schema import Column, DataType, Kind, Schema
from headrace.sidecar.offline.sql_replay.session import Row, Session

_RELATIONS = """
with recursive base(oid, last, typmod) as (
  select t.oid, t.typbasetype, t.typtypmod from pg_type t where t.typtype = 'd'
  union all
  select b.oid, t.typbasetype, case when b.typmod >= 0 then b.typmod else t.typtypmod end
  from base b join pg_type t on t.oid = b.last where t.typtype = 'd'),
domains as (select b.* from base b join pg_type t on t.oid = b.last where t.typtype <> 'd'),
above(oid, parent) as (
  select inhrelid, inhparent from pg_inherits
  union select a.oid, i.inhparent from above a join pg_inherits i on i.inhrelid = a.parent),
own(oid, labels) as (
  select t.oid, coalesce((
    select json_agg(e.enumlabel order by e.enumsortorder) from pg_enum e
    where e.enumtypid = coalesce(nullif(t.typelem, 0), t.oid)), '[]')
  from pg_type t where t.typnamespace <> 'pg_catalog'::regnamespace)
select coalesce(json_agg(json_build_object(
  'oid', c.oid::int8, 'file', pg_relation_filenode(c.oid)::int8, 'schema', n.nspname, 'name', c.relname,
  'kind', c.relkind, 'visible', pg_table_is_visible(c.oid), 'populated', c.relispopulated,
  'definition', case when c.relkind = 'v' then pg_get_viewdef(c.oid) end,
  'columns', (
    select coalesce(json_agg(json_build_array(a.attname,
      case when d.oid is null then format_type(a.atttypid, a.atttypmod) else format_type(d.last, d.typmod) end,
      a.attnotnull and not exists (
        select from pg_constraint k
        where k.conrelid = c.oid and k.contype = 'n' and k.conkey = array[a.attnum] and not k.convalidated)
      , o.labels) order by a.attnum), '[]')
    from pg_attribute a left join domains d on d.oid = a.atttypid
    left join own o on o.oid = coalesce(d.last, a.atttypid)
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
  'key', (
    select json_agg(a.attname order by k.at)
    from pg_index i, unnest(i.indkey::int2[]) with ordinality k(num, at), pg_attribute a
    where i.indrelid = c.oid and i.indisprimary and i.indimmediate
      and a.attrelid = c.oid and a.attnum = k.num and k.at <= i.indnkeyatts),
  'parents', (select coalesce(json_agg(a.parent::int8), '[]') from above a where a.oid = c.oid),
  'has_children', exists (select from pg_inherits i where i.inhparent = c.oid)
)), '[]')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'm', 'v') and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
  and (n.nspname not like 'pg\\_temp\\_%' or n.oid = pg_my_temp_schema())"""
"""Every relation with rows. A domain counts as its base type; a deferrable key counts as none, since a transaction may break
it.
"""

_TYPES = """
select coalesce(json_agg(json_build_array(t.typname,
  case t.typtype when 'd' then format_type(t.typbasetype, t.typtypmod) else format_type(t.oid, null) end,
  (select json_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = t.oid))), '[]')
from pg_type t
where pg_type_is_visible(t.oid) and (t.typtype = 'e' or (t.typtype = 'd' and not t.typnotnull
  and not exists (select from pg_constraint k where k.contypid = t.oid)
  and not exists (select from pg_type b where b.oid = t.typbasetype and b.typtype = 'd')
  and t.typnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)))"""
"""The database's own types that an expression may name: enums, and domains that are no more than their base."""

_COMPOSITES = """
select coalesce(json_agg(json_build_array(c.relname, (
  select json_agg(json_build_array(a.attname, format_type(a.atttypid, a.atttypmod)) order by a.attnum)
  from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped))), '[]')
from pg_class c
where c.relkind = 'c' and pg_type_is_visible(c.reltype) and exists (
  select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped)
and not exists (
  select from pg_attribute a join pg_type t on t.oid = a.atttypid where a.attrelid = c.oid and a.attnum > 0
  and a.atttypmod >= 0 and t.typcategory = 'T')"""
"""The row types that have a name and no table, whose intervals have all their digits."""

_LOCKED = """select distinct relation::int8 from pg_locks where pid = pg_backend_pid() and locktype = 'relation'
and mode not in ('AccessShareLock', 'RowShareLock')"""

Version = tuple[str | None, str | None]


class Change(NamedTuple):
    """Rows of one table that went and that came, in text."""

    oid: int
    removed: list[Row]
    added: list[Row]


@dataclass(frozen=True)
class Relation:
    """A table, partitioned table, materialized view or view as the catalogue has it."""

    oid: int
    file: int | None
    schema_name: str
    name: str
    kind: str
    visible: bool
    definition: str | None
    schema: Schema
    parents: tuple[int, ...]
    populated: bool = True

    @property
    def full(self) -> str:
        """Its name with that of its schema."""
        return f"{self.schema_name}.{self.name}"

    @property
    def holds_rows(self) -> bool:
        """Whether the engine has a table for it: it is no view, and has columns."""
        return self.kind != "v" and bool(self.schema.columns)

    @property
    def stored(self) -> bool:
        """Whether it has rows of its own that can be read."""
        return self.kind in ("r", "m") and self.holds_rows and self.populated


@dataclass
class _Mirror:
    """The versions of a table's rows that were given, and since which transaction there may be others."""

    rows: dict[Version, Row] = field(default_factory=dict)
    since: int = 0


class Capture:
    """The tables of one session. `relations` by OID, `types` and `composites` by name; single writer: the script's run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.relations: Mapping[int, Relation] = {}
        self.types: Mapping[str, DataType] = {}
        self.composites: Mapping[str, tuple[Column, ...]] = {}
        self._mirrors: dict[int, _Mirror] = {}

    def locked(self) -> set[int]:
        """The relations that the open transaction may have written."""
        return {int(r[0] or 0) for r in self._session.ask(_LOCKED).rows}

    def reload(self) -> Mapping[int, Relation]:
        """Read the catalogue anew."""
        [(text,)] = self._session.ask(_RELATIONS).rows
        self.relations = {r.oid: r for r in map(_relation, json.loads(text or "[]"))}
        [(text,)] = self._session.ask(_TYPES).rows
        self.types = {name: _typed(spelled, labels) for name, spelled, labels in json.loads(text or "[]")}
        [(text,)] = self._session.ask(_COMPOSITES).rows
        self.composites = {name: self._fields(found) for name, found in json.loads(text or "[]")}
        for oid in list(self._mirrors):
            if oid not in self.relations:
                del self._mirrors[oid]
        return self.relations

    def _fields(self, found: list[list[str]]) -> tuple[Column, ...]:
        """The fields of a composite type."""
        return tuple(
            Column(name, self.types.get(spelled) or DataType.parse(spelled), digits=declared_precision(spelled))
            for name, spelled in found
        )

    def forget(self, oid: int) -> None:
        """The rows of a table count as never given."""
        self._mirrors.pop(oid, None)

    def changes(self, oid: int, *, anew: bool = False) -> Change | None:
        """What came and went in a table since it was last looked at; `anew`: without trusting what was seen then."""
        relation = self.relations.get(oid)
        if relation is None or not relation.stored:
            return None
        mirror = self._mirrors.setdefault(oid, _Mirror())
        name = quoted(relation)
        [(now,)] = self._session.ask("select pg_snapshot_xmin(pg_current_snapshot())::text").rows
        if anew:
            # A value may look different without a new version of its row, where its type was altered.
            there = self._newer(name, 0, {})
            removed = [row for version, row in mirror.rows.items() if there.get(version) != row]
            newer = {version: row for version, row in there.items() if mirror.rows.get(version) != row}
            mirror.rows = there
        else:
            newer = self._newer(name, mirror.since, mirror.rows)
            [(count,)] = self._session.ask(f"select count(*) from only {name}").rows  # noqa: S608 (a quoted name)
            removed = []
            if int(count or 0) != len(mirror.rows) + len(newer):
                there_now = set(self._session.ask(f"select ctid, xmin from only {name}").rows)  # noqa: S608
                if not there_now <= mirror.rows.keys() | newer.keys():
                    newer = self._newer(name, 0, mirror.rows)  # rewritten: old versions at new places
                removed = [mirror.rows.pop(v) for v in [v for v in mirror.rows if v not in there_now]]
            mirror.rows.update(newer)
        mirror.since = int(now or 0)
        if not removed and not newer:
            return None
        return Change(oid, removed, list(newer.values()))

    def _newer(self, name: str, since: int, known: Mapping[Version, Row]) -> dict[Version, Row]:
        """The versions since a transaction that are not `known`."""
        asked = f"select ctid, xmin, * from only {name} where xmin::text::int8 >= {since}"  # noqa: S608
        rows = self._session.ask(asked).rows
        return {(r[0], r[1]): r[2:] for r in rows if (r[0], r[1]) not in known}


def quoted(relation: Relation) -> str:
    """The relation's name as SQL spells it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in (relation.schema_name, relation.name))


def _typed(spelled: str, labels: list[str] | None) -> DataType:
    """A type; `labels`: of one that is the database's own."""
    found = DataType.parse(spelled)
    return found if labels is None or found.kind is not Kind.OTHER else replace(found, labels=tuple(labels))


def _relation(found: dict[str, object]) -> Relation:
    columns = tuple(
        Column(n, _typed(t, own), not required, declared_precision(t))
        for n, t, required, own in found["columns"]  # type: ignore[attr-defined]
    )
    key = found["key"]
    if found["kind"] not in ("r", "p") or (found["kind"] == "r" and found["has_children"]):
        key = None  # the rows of a table that others inherit from are theirs too
    names = [c.name for c in columns]
    place = None if not isinstance(key, list) else tuple(names.index(k) for k in key)
    return Relation(
        int(found["oid"]), None if found["file"] is None else int(found["file"]),  # type: ignore[call-overload]
        str(found["schema"]), str(found["name"]), str(found["kind"]), bool(found["visible"]),
        None if found["definition"] is None else str(found["definition"]),
        Schema(columns, place), tuple(found["parents"]), bool(found["populated"]),  # type: ignore[arg-type]
    )  # fmt: skip
