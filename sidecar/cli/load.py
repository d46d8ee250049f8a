"""`headrace load`: what is printed of a load."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.errors import HeadraceError
from headrace.sidecar.cli import output
from headrace.sidecar.config.config import Settings


class SparkMissing(HeadraceError):
    """A load needs Spark."""

    code = "load"


def run_load(
    settings: Settings, tables: Sequence[str], origin: str, *, version: int | None, tasks: int | None, repeat: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Load, and tell how many rows of each table. Raises LoadError."""
    try:
        from headrace.sidecar.lake.empty_state import is_running
        from headrace.sidecar.lake.load import Origin, load_tables
        from headrace.sidecar.lake.load_beside import load_beside
    except ImportError as error:
        raise SparkMissing(f"Spark is not installed: {error}", hint="pip install 'headrace[spark,embedded]'") from error
    place = Origin.parse(origin)
    if is_running(settings) and not repeat:
        done = load_beside(settings, tables, place, tasks=tasks)
    else:
        done = load_tables(settings, tables, place, version=version, tasks=tasks, repeat=repeat)
    rate = sum(done.rows.values()) / max(done.seconds, 1e-9)
    title = f"{sum(done.rows.values()):,} rows in {done.seconds:.1f} s ({rate:,.0f} a second), {done.shards} shards"
    title = f"the same as was loaded before: {title}" if done.repeated else title
    title = f"the running sidecar took them in: {title}" if done.beside else title
    body = {**done.json(), "rows_a_second": round(rate)}
    output.emit(body, as_json=as_json, tables=[output.table(title, ("table", "rows"), list(done.rows.items()))])
