"""`headrace audit`: which databases and views are meant, and what is printed, once or every few seconds.

Always: a round prints one table or one JSON object; a mismatch ends one round with its own exit code, and is a metric of
many.
"""

from __future__ import annotations

import collections
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from headrace.connectors.commit_place import Lsn
from headrace.engine.errors import HeadraceError
from headrace.sidecar.cli import output
from headrace.sidecar.config.config import PostgresSinkConfig, Settings
from headrace.sidecar.control.client import Client
from headrace.sidecar.operations.audit import Audit, AuditError, Changes, Finding, nobody
from headrace.sidecar.operations.postgres_at_lsn import Row, with_views
from headrace.sidecar.telemetry.http_server import ALIVE, HttpServer, Served
from headrace.sidecar.telemetry.metrics import without_created
from headrace.sidecar.wiring.project import read_project, tables_of
from headrace.views.compile import CompiledView


def run_audit(
    settings: Settings,
    names: Sequence[str],
    sink: str | None,
    url: str | None,
    every: float | None,
    http: str | None,
    *,
    as_json: bool,
) -> None:
    """One round, or one every `every` seconds until Ctrl-C: then what cannot be read in a later round is told, and the next one
    tries again. Raises AuditError."""
    audit = prepare(settings, names, sink, url)
    if every is None:
        found = audit.run()
        _print(found, as_json=as_json)
        _refuse(found)
        return
    metrics = AuditMetrics()
    door = metrics.serve(http) if http else None
    try:
        while True:
            try:
                found = audit.run()
            except AuditError as failure:
                if not metrics.begun:
                    raise
                metrics.fail()
                _tell(failure, as_json=as_json)
            else:
                metrics.take(found)
                _print(found, as_json=as_json)
            time.sleep(every)
    finally:
        if door is not None:
            door.close()


def prepare(settings: Settings, names: Sequence[str], sink: str | None, url: str | None) -> Audit:
    """What is to be compared with what. Raises AuditError naming what is not there."""
    sinks = {s.name: s for s in settings.config.sinks if isinstance(s, PostgresSinkConfig)}
    config = sinks.get(sink) if sink else next(iter(sinks.values()), None)
    if config is None:
        raise AuditError("there is no such postgres sink", sink=sink, hint=f"there are: {', '.join(sinks) or 'none'}")
    sources = [s for s in settings.config.sources if s.type == "debezium" and (url or s.database is not None)]
    if len(sources) != 1:
        raise AuditError("which source is meant is not clear", sources=", ".join(s.name for s in sources) or "none",
                         hint="give `database:` of one debezium source, or --from")  # fmt: skip
    [source] = sources
    where = url or (source.database.get_secret_value() if source.database else "")
    project = read_project(settings)
    if project.unknown:
        raise AuditError("columns are known only from messages", tables=", ".join(project.unknown),
                         hint="declare the columns in headrace.yaml: `headrace init` writes them")  # fmt: skip
    compiled = project.compile()
    theirs = {t.name for t in source.tables or ()}
    mine = [v for v in compiled if config.name in v.spec.sinks and _read(v, compiled) <= theirs]
    programs = {v.name for v in compiled if v.spec.program}
    unasked = [v for v in mine if v.name in programs or programs & _views_of(v, compiled)]
    named = [v.name for v in unasked if v.name in names]
    if named:
        raise AuditError("Postgres has no Datalog to compare a view with", views=", ".join(named),
                         hint="name the views that are SQL and read no program")  # fmt: skip
    mine = [v for v in mine if v not in unasked]
    unknown = set(names) - {v.name for v in mine}
    if unknown:
        raise AuditError("no such view of this source in this sink", views=", ".join(sorted(unknown)), sink=config.name)
    chosen = [v for v in mine if not names or v.name in names]
    needed = [v for v in compiled if v in chosen or any(v.name in _views_of(c, compiled) for c in chosen)]
    return Audit(where, config.url.get_secret_value(), config.schema_, config.name, source.name, chosen,
                 queries=with_views(needed), asking=partial(asking, settings, source.name))  # fmt: skip


@contextmanager
def asking(settings: Settings, source: str) -> Iterator[Changes]:
    """Have the running sidecar take in each transaction by itself, and tell what its views changed since a commit; where none
    answers, nothing is told."""
    client = Client(settings)
    lines = client.stream("GET", "/each", {"who": "audit"})

    def changed(lsn: int, epoch: int, views: Sequence[str]) -> dict[str, collections.Counter[Row]]:
        found: dict[str, collections.Counter[Row]] = {name: collections.Counter() for name in views}
        asked = {"source": source, "lsn": lsn, "epoch": epoch, "views": list(views)}
        try:
            for line in client.stream("POST", "/since", asked):
                if "row" in line:
                    found[line["view"]][tuple(line["row"])] += line["diff"]
                elif line["lost"]:
                    del found[line["view"]]
        except HeadraceError:
            return {}
        return found

    try:
        next(lines)
    except HeadraceError:
        with nobody() as nothing:
            yield nothing
        return
    try:
        yield changed
    finally:
        lines.close()


def _views_of(view: CompiledView, views: Sequence[CompiledView]) -> set[str]:
    by_name = {v.name: v for v in views}
    found = set(view.reads)
    for name in view.reads:
        found |= _views_of(by_name[name], views)
    return found


def _read(view: CompiledView, views: Sequence[CompiledView]) -> set[str]:
    """The tables that a view rests on, through others too."""
    by_name = {v.name: v for v in views}
    return set(tables_of(view)).union(*(tables_of(by_name[n]) for n in _views_of(view, views)))


def _print(found: Sequence[Finding], *, as_json: bool) -> None:
    wrong = sum(f.missing + f.extra for f in found)
    body = {"mismatches": wrong, "views": [{**vars(f), **Lsn(f.lsn).json()} for f in found]}
    rows = [(f.view, f.state, f.rows, f.missing, f.extra, f.epoch, f.why) for f in found]
    columns = ("view", "state", "rows", "missing", "too many", "epoch", "why")
    output.emit(body, as_json=as_json, tables=[output.table(f"{len(found)} views, {wrong} mismatches", columns, rows)])


def _tell(failure: AuditError, *, as_json: bool) -> None:
    """A round that could not be made."""
    if as_json:
        output.emit({"error": failure.as_json()}, as_json=True)
    else:
        sys.stderr.write(f"error {failure}; trying again\n")
        sys.stderr.flush()


def _refuse(found: Sequence[Finding]) -> None:
    wrong = [f for f in found if f.state == "mismatch"]
    gone = [f for f in found if f.state == "gone"]
    if gone and not wrong:
        raise AuditError(
            "the source no longer has what a view reads, so that its rows cannot become newer",
            views=", ".join(f.view for f in gone), why=gone[0].why,
            hint="change or drop the views, or give the source the table or column back and `headrace resync` it",
        )  # fmt: skip
    if wrong:
        raise AuditError(
            "the sink does not hold what the source answers", views=", ".join(f.view for f in wrong),
            rows=sum(f.missing + f.extra for f in wrong),
            hint="where changes of the source were lost, `headrace resync TABLE`; where somebody changed the sink's rows, delete "
            "the views' rows from its table `view` and restart: they are filled anew",
        )  # fmt: skip


class AuditMetrics:
    """The last round, for Prometheus. `begun`: a round was made."""

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self.mismatches = Gauge("headrace_audit_mismatches", "Rows missing or too many", ["view"], registry=r)
        self.settled = Gauge("headrace_audit_settled", "1 where the view could be compared", ["view"], registry=r)
        self.rounds = Counter("headrace_audit_rounds", "Rounds completed", registry=r)
        self.failures = Counter("headrace_audit_failures", "Rounds in which a database could not be read", registry=r)
        self.last = Gauge("headrace_audit_last_seconds", "When the last round ended (seconds since 1970)", registry=r)

        self.begun = False
        self._views: set[str] = set()

    def fail(self) -> None:
        """A round could not be made: nothing is known of any view now."""
        self.failures.inc()
        for view in self._views:
            self.settled.labels(view).set(0)

    def take(self, found: Sequence[Finding]) -> None:
        """Take a round in."""
        self.begun = True
        self._views = {f.view for f in found}
        for f in found:
            self.mismatches.labels(f.view).set(f.missing + f.extra if f.state == "mismatch" else 0)
            self.settled.labels(f.view).set(f.state in ("equal", "mismatch"))
        self.rounds.inc()
        self.last.set_to_current_time()

    def serve(self, address: str) -> HttpServer:
        """Answer /metrics at host:port."""
        door = HttpServer(address, Served(lambda _: ALIVE, lambda: without_created(self.registry), dict))
        door.start()
        return door
