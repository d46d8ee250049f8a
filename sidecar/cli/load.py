"""`headrace load`: what is printed of a load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.engine.errors import HeadraceError
from headrace.sidecar.cli import output
from headrace.sidecar.config.config import Settings


class SparkMissing(HeadraceError):
    """A load needs Spark."""

    code = "load"


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A line on standard error while it lasts, where that is a terminal: the table, its tasks, and how long it takes."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task("Spark starts", total=None, told="")

        def tell(table: str, done: int, of: int) -> None:
            bar.update(line, description=table, completed=done, total=of or None, told=f"{done} of {of} tasks")

        yield tell


def run_load(
    settings: Settings, tables: Sequence[str], origin: str, *, version: int | None, tasks: int | None, repeat: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Load, and tell how many rows of each table. Raises LoadError."""
    try:
        from headrace.sidecar.lake.empty_state import is_running
        from headrace.sidecar.lake.load import Origin, load_tables
        from headrace.sidecar.lake.load_beside import load_beside
        from headrace.sidecar.lake.runs import LoadError
    except ImportError as error:
        raise SparkMissing(f"Spark is not installed: {error}", hint="pip install 'headrace[spark,embedded]'") from error
    place, running = Origin.parse(origin), is_running(settings)
    if running and repeat:
        raise LoadError("a sidecar is running, and the state is no longer as it was loaded", state=settings.state,
                        hint="without --repeat it fills new tables beside it")  # fmt: skip
    with _progress() as tell:
        if running:
            done = load_beside(settings, tables, place, version=version, tasks=tasks, tell=tell)
        else:
            done = load_tables(settings, tables, place, version=version, tasks=tasks, repeat=repeat, tell=tell)
    rate = sum(done.rows.values()) / max(done.seconds, 1e-9)
    title = f"{sum(done.rows.values()):,} rows in {done.seconds:.1f} s ({rate:,.0f} a second), {done.shards} shards"
    title = f"the same as was loaded before: {title}" if done.repeated else title
    title = f"the running sidecar took them in: {title}" if done.beside else title
    body = {**done.json(), "rows_a_second": round(rate)}
    output.emit(body, as_json=as_json, tables=[output.table(title, ("table", "rows"), list(done.rows.items()))])
