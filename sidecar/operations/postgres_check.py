"""`headrace validate --against`: what a Postgres says of each view's SQL beside what our binder says of it.

Always: views that a view reads are put in front of it as CTEs, so that nothing is created there; a view is left out
where Postgres refuses one that it reads. Called by the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.connectors.postgres.describe import Prepared, Preparer, Refusal, Type, preparing
from headrace.sidecar.operations.postgres_at_lsn import alone
from headrace.sidecar.wiring.project import Project
from headrace.views.catalog import DEFAULT_SCHEMA, Catalog
from headrace.views.compile import CheckedViews, CompiledView, check_views
from headrace.views.errors import ViewError
from headrace.views.lineage import Named, columns_named
from headrace.views.spec import ViewSpec
from headrace.views.sql.parsing.parse import column_starts
from headrace.views.yaml_reader import ConfigError

_SETTINGS = {
    "search_path": DEFAULT_SCHEMA,
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "lock_timeout": "5s",
    "statement_timeout": "30s",
}
"""Names and constants mean what the binder takes them for, and no ALTER TABLE of others is waited for."""

_TIMES = (1083, 1114, 1184, 1186, 1266)
"""The OIDs of Postgres's time, timestamp, timestamptz, interval and timetz."""
_PERMISSION, _NO_TABLE = "42501", "42P01"


@dataclass(frozen=True)
class Difference:
    """A finding: Postgres and we differ on it, or both refuse it.

    `what`: column type, column name, columns, refused by Postgres, refused by us, refused by both. `character`: in `line`
    of `file`, from 1; `column`: of the view.
    """

    view: str
    what: str
    ours: str
    postgres: str
    hint: str
    file: str
    line: int | None
    character: int | None
    column: str | None = None


@dataclass(frozen=True)
class Compared:
    """All views beside one Postgres; `prepared`: how many it was asked about."""

    database: str
    version: str
    checked: CheckedViews
    prepared: int
    differences: tuple[Difference, ...]


def compare(project: Project, url: str) -> Compared:
    """Ask the Postgres at `url` about every view. Raises ConfigError, and SourceError where it cannot be asked."""
    if project.unknown:
        raise ConfigError("columns are known only from messages", file=project.settings.path,
                          tables=", ".join(project.unknown),
                          hint="declare them in headrace.yaml: `headrace init` writes them")  # fmt: skip
    checked = check_views(project.specs, Catalog(dict(project.tables)))
    with preparing(url, _SETTINGS) as postgres:
        comparison = _Comparison(project, checked, postgres)
        found = tuple(d for spec in project.specs for d in comparison.differences(spec))
        prepared = sum(said is not None for said in comparison.said.values())
        return Compared(postgres.place, postgres.version, checked, prepared, found)


@dataclass
class _Comparison:
    """`said`: what Postgres says of the views asked about so far, None of those that read one it refuses."""

    project: Project
    checked: CheckedViews
    postgres: Preparer
    said: dict[str, Prepared | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.texts = {s.name: s.sql for s in self.project.specs}
        self.programs = {s.name for s in self.project.specs if s.program}
        self.reads = {n: self.checked.reads.get(n) or self._words(n) for n in self.texts}
        self.views: dict[str, CompiledView] = {v.name: v for v in self.checked.views}
        self.errors: dict[object, ViewError] = {e.where["view"]: e for e in self.checked.errors}
        self.named = columns_named(self.checked.views)

    def _words(self, name: str) -> tuple[str, ...]:
        """The views that a text which we cannot parse may name."""
        words = set(re.findall(r"\w+", self.texts[name])) if name not in self.checked.reads else set()
        return tuple(n for n in self.texts if n in words and n != name)

    def ask(self, name: str, path: tuple[str, ...] = ()) -> Prepared | None:
        """What Postgres says of a view, once it was asked about those that the view reads."""
        if name in self.programs:
            # Postgres has no Datalog: it is asked neither about these nor about what reads them.
            self.said[name] = None
        if name not in self.said:
            before = [self.ask(r, (*path, name)) for r in self.reads[name] if r not in path]
            ready = all(b is not None and b.refusal is None for b in before)
            self.said[name] = self.postgres.prepare(alone(name, self.texts, self.reads)[0]) if ready else None
        return self.said[name]

    def differences(self, spec: ViewSpec) -> Iterator[Difference]:
        """What Postgres says otherwise of one view."""
        theirs = self.ask(spec.name)
        view, error = self.views.get(spec.name), self.errors.get(spec.name)
        refusal = None if theirs is None else theirs.refusal
        if error is not None:
            yield self._refused_by_us(spec, error, theirs)
        elif refusal is not None:
            ours = "valid" if view is not None else "not looked at: it reads a view that we refuse"
            yield self._refused(spec, refusal, ours)
        if view is not None and theirs is not None and theirs.columns:
            yield from self._columns(view, theirs)

    def _refused_by_us(self, spec: ViewSpec, error: ViewError, theirs: Prepared | None) -> Difference:
        refusal = None if theirs is None else theirs.refusal
        what = "refused by us" if refusal is None else "refused by both"
        told = "not asked: it reads a view that Postgres refuses" if theirs is None else "valid"
        line, character = (v if isinstance(v, int) else None for v in map(error.where.get, ("line", "column")))
        return Difference(spec.name, what, error.what, told if refusal is None else refusal.message, error.hint,
                          spec.file, line, character)  # fmt: skip

    def _refused(self, spec: ViewSpec, refusal: Refusal, ours: str) -> Difference:
        begin = alone(spec.name, self.texts, self.reads)[1]
        at = -1 if refusal.position is None else refusal.position - begin
        line, character = spec.place(at) if 0 <= at < len(spec.sql) else (spec.line, None)
        hint = refusal.hint or self._cause(spec.name)
        if refusal.sqlstate == _PERMISSION:
            hint = f"grant SELECT on it, and USAGE on its schema, to {self.postgres.user}"
        elif refusal.sqlstate == _NO_TABLE and not hint:
            hint = f"is it the right database? Names without a schema are looked for in {DEFAULT_SCHEMA}"
        return Difference(spec.name, "refused by Postgres", ours, refusal.message, hint, spec.file, line, character)

    def _columns(self, view: CompiledView, theirs: Prepared) -> Iterator[Difference]:
        spec, columns = view.spec, view.schema.columns
        if len(columns) != len(theirs.columns):
            ours, postgres = ", ".join(view.schema.names), ", ".join(name for name, _ in theirs.columns)
            yield Difference(view.name, "columns", ours, postgres, self._cause(view.name), spec.file, spec.line, None)
            return
        starts = column_starts(spec)
        for i, (column, (name, of)) in enumerate(zip(columns, theirs.columns, strict=True)):
            line, character = spec.place(starts[i] or 0) if len(starts) == len(columns) else (spec.line, None)
            at = (spec.file, line, character, column.name)
            if column.name != name:
                yield Difference(view.name, "column name", column.name, name, "", *at)
            ours = column.type.sql()
            if self._differ(self.postgres.type_of(ours), of, view.name):
                yield Difference(view.name, "column type", ours, self.postgres.spelled(of), self._cause(view.name), *at)

    def _differ(self, ours: Type | None, theirs: Type, view: str) -> bool:
        """Whether types differ. Of max(total) we know the digits of total, and Postgres has forgotten them; of a time's
        digits Postgres knows how many, and we round its values and forget."""
        forgotten = ours is not None and ours[0] == theirs[0] and theirs[1] == -1
        if ours is not None and ours[0] == theirs[0] in _TIMES:
            return False
        return ours != theirs and not (forgotten and not self._cause(view))

    def _cause(self, name: str) -> str:
        """The columns that a view names and that are there otherwise than headrace.yaml says."""
        named: Named = self.named.get(name, frozenset())
        found = []
        for table in sorted({t for t, _ in named}):
            schema = self.project.tables[table]
            here = ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".", 1))
            there: dict[str, Type] = dict(self.postgres.describe(f"TABLE {here}").columns)
            for column in schema.columns:
                of = there.get(column.name)
                if (table, column.name) in named and there and of != self.postgres.type_of(column.type.sql()):
                    is_there = "not" if of is None else self.postgres.spelled(of)
                    found.append(f"{table}.{column.name} is {is_there} there, {column.type.sql()} in headrace.yaml")
        return "; ".join(found)
