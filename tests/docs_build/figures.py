"""docs/benchmarks.md and the numbers in README.md, written from the benchmarks' JSON.

Always: `docs/figures` holds the last figures taken over from build/bench, and the pages are a function of it alone, so that
a benchmark that was not run keeps its committed section and a check needs no benchmark.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.docs_build import misses, summary
from tests.docs_build.chart import Panel, chart
from tests.docs_build.contest_chart import systems
from tests.docs_build.epochs_chart import Series, epochs_chart
from tests.docs_build.markdown import table

Rows = Sequence[Mapping[str, Any]]
FIRST = (
    "freshness", "catchup", "hostile", "stack", "recovery", "memory", "resident",
    "intake", "dataflow", "views", "group", "arrange", "reduce", "join", "sharing", "graph", "recursion", "datalog", "strategies",
    "tpch",
    "sql", "workers", "spark", "spark-rescale", "spark-load", "spark-jdbc", "checkpoint", "shards", "sizing",
    "epochs", "reclock", "spark-freshness", "spark-scaling", "spark-streaming",
)  # fmt: skip
TITLES = {
    "freshness": "Freshness: commit in Postgres → visible in the sink",
    "catchup": "Catching up: what was committed while the sidecar was down",
    "hostile": "Twenty hostile views beside five ordinary ones",
    "stack": "What each real part costs",
    "recovery": "Recovery: from nothing in memory to ready",
    "memory": "Memory: a large table and a large transaction",
    "resident": "Where a sidecar's memory is",
    "intake": "Intake: from bytes to columns",
    "dataflow": "Engine: a step through five views",
    "views": "Engine: many views over the same tables",
    "group": "Engine: one change of a large group",
    "arrange": "Engine beside differential-dataflow: arranging",
    "texts": "Engine: texts at merges, beside what other layouts would take",
    "reduce": "Engine beside differential-dataflow: count and distinct",
    "join": "Engine beside differential-dataflow: join",
    "sharing": "Engine beside differential-dataflow: sharing",
    "graph": "Engine beside differential-dataflow: queries over a graph",
    "workers": "Engine: two workers beside one",
    "spark": "Workers on Spark beside workers of this machine",
    "spark-rescale": "Another count of workers while it runs: the longest pause",
    "spark-load": "Filling a table by Spark: from Parquet, beside one process and beside topics",
    "spark-jdbc": "Filling a table by Spark: from Postgres, beside one COPY",
    "checkpoint": "Checkpoints to an S3 server beside the local disk",
    "spark-freshness": "Freshness with workers on Spark",
    "spark-scaling": "One, two and four workers on Spark",
    "spark-streaming": "Workers on Spark beside Structured Streaming",
    "shards": "Intake on the workers: what the driver pays for an event",
    "sizing": "Sizing: what a worker holds, and its connections",
    "epochs": "The log of epochs: in a topic beside a file",
    "reclock": "The log of epochs in a topic: what it adds to freshness",
    "recursion": "Recursive views beside Rust libraries and Postgres",
    "datalog": "Recursive programs as data change, beside Rust libraries",
    "strategies": "Engine: recursion by state beside its rounds",
    "tpch": "Engine beside differential-dataflow: TPC-H by hand",
    "sql": "Views in SQL: TPC-H beside Postgres, ten views together, one change over stored rows",
}
ABOUT = {
    "freshness": "Transactions of about seven events over five tables, durable epochs and both exactly-once sinks on. The first "
    "three lines are measured outside of the sidecar: from the return of COMMIT to the first look at the sink's frontier "
    "that is beyond it. The stages are the sidecar's own account, warm-up included. A checker reads the views all the while, "
    "each state in one REPEATABLE READ transaction. The contest: the same views, writer, topics and database for each "
    "system, one after the other, with 27,000 rows to load first. Headrace has its defaults; Flink SQL is tuned by hand "
    "(mini-batch off, buffer timeout 2 ms, sink flush 5 ms, checkpoints 10 s); Pathway has a connector of its own, as it needs "
    "records with schemas, and words in the place of nulls, as it loses rows that hold one. Then those that read the same "
    "records follow 600 transactions a second, and each system once loads many rows, which are all in Kafka.",
    "catchup": "Transactions of about seven events over five tables wait in Kafka, all of them, when a sidecar that was killed "
    "(kill -9) is started again. The clock runs from the start of the process to the first look at the sink's frontier that is "
    "beyond the last commit; then every view is compared with Postgres. Both sinks are written.",
    "hostile": "`make hostile`: 200 transactions a second, some of them on hot keys. First the five ordinary views alone for a "
    "quarter of the time, then beside twenty views such as global counts, shares of a total, a settings row joined with all and "
    "cross joins of small changing tables. Every view is compared with Postgres in the end. The machine did other work "
    "in both parts of the run.",
    "arrange": "The peer is a crate in tests/bench/peers/differential on the published Rust library, built for this machine's "
    "own processor, one worker. Both sides are processes that read the same columns from files and take turns in one run; where "
    "the checksum of what they hold or send differs, the benchmark fails. Figures are processor seconds of the whole process, "
    "from numbers in memory to the last operator's output, and resident bytes after both allocators gave back what they keep.",
    "texts": "Two batches of 500,000 pairs of (u64, text) merged. Beside texts whose bytes are copied, which is what the engine "
    "does, stand-ins of the same width for Arrow's views and for codes of a dictionary, with the work of Arrow that comes with "
    "them and without what kernels would have to ask: the other layouts at their best. A ratio above one is what a layout could "
    "save. Fresh batches hold their rows as they came, those merged before in the batch's order, as most that are merged. "
    "Figures are processor seconds.",
    "reduce": "Data and rules as above. A change is a delete and an insert, of a window that slides over random keys. "
    "differential-dataflow's `reduce` form keeps a trace of its output, as ours does, and its `_total` form does not. dbsp, the "
    "engine of Feldera, is a crate in tests/bench/peers/dbsp with one worker, its merger thread, and the allocator of its own "
    "benchmarks. An epoch there is a transaction, as it has no epochs within one; merges that a command leaves to its other "
    "thread count with that command.",
    "join": "Data and rules as above: one epoch of so many keys a physical batch. Our keys are a table that is upserted; "
    "those of both peers are inserted.",
    "sharing": "Data and rules as above. An install is a query over a live arrangement: built, given its keys, answered; then "
    "dropped.",
    "workers": "Each worker is a process that begins with a share of the rows, whatever their keys, and exchanges them by key; "
    "one worker and two take turns on the same rows, and the checksums of their outputs must be equal. The rate is that of the "
    "busiest worker, by its processor time and by the clock.",
    "spark": "Two pools of two workers, one on a standalone Spark of two executors, take the same epochs turn by turn; their "
    "outputs must be the same bytes. Processor time and waits are of the busiest worker, an epoch.",
    "spark-rescale": "Two sidecars with a table that is not small, one with workers of this machine, one with workers on a "
    "standalone Spark of two executors; a transaction of ten events every 20 ms. They take turns; after each rescaling the next "
    "begins with a checkpoint. The pause is the longest time between the ends of two steps from the request on: it holds the "
    "start of the new workers, during which steps go on, and the switch, during which none does.",
    "spark-load": "The table has a bigint key, an integer, a bigint and a text, in files of five million rows. A load's session "
    "runs already. The dataflow reads the same files in a process that is held on one core. The topics are a real Kafka's, in "
    "Debezium's form, without schemas, read as an initial snapshot into a sidecar whose sink is in memory; Kafka has all of it "
    "before the clock starts. All end with a checkpoint. Memory is read every 50 ms.",
    "spark-jdbc": "An embedded Postgres on the same machine, the table of bench-spark-load, in its cache. Each task reads a "
    "range of pages by COPY, in one snapshot. The one COPY beside them is read by psycopg and thrown away. Every side takes "
    "its turn; the session and the processes of the tasks run already.",
    "checkpoint": "Two dataflows of one process, which take the same epochs; checkpoints are written by another thread while "
    "steps go on, one every 10 ms, as the sidecar writes them. The server is moto, a program in Python, in a process of its own "
    "on the same machine: another server is faster, and its network slower. In the last line it is stopped (SIGSTOP) for a "
    "while in the middle of a checkpoint.",
    "spark-freshness": "Postgres, Kafka, Connect with Debezium and a standalone Spark of two executors. A sidecar with two "
    "workers there and one with two workers of this machine take turns over the same topics, with the views of the freshness "
    "contest; their configurations differ in `engine` alone. The clock is the writer's and a watcher's. A checker reads states "
    "all the while.",
    "spark-scaling": "Three pools, of one, two and four workers, on one standalone Spark take the same transactions turn by "
    "turn; their outputs must be the same bytes. Rates are by processor time, of the whole process of a worker, so that four "
    "workers may share two cores. That of the busiest says how much more a cluster carries; that of all together says what "
    "exchange and fixed costs take, and the difference of the two is imbalance.",
    "spark-streaming": "A join of two streams and an aggregation of one, on one standalone Spark, fed with the same rows at the "
    "same pace, in turns. Structured Streaming runs them as two queries with the default trigger, two partitions, sockets as "
    "sources and tables in the driver's memory as sinks; a micro-batch's end is by Spark's own account. Ours runs them as two "
    "views of one dataflow and binds each epoch durably. Each takes in what has come since its last one. Both state stores of "
    "Spark are measured, and goals are beside the better one. What the views hold in the end must be right.",
    "epochs": "One transaction a turn, until its binding is durable: a synced file, or a transaction of the topic that "
    "readers see. The broker is the embedded one on the same disk. The engine steps meanwhile, which hides some of it.",
    "shards": "A driver with two workers and a view of three sums, with its own intake and with the workers', in turns over the "
    "same topic of four partitions. Processor time of the driver's process, Kafka's client included; from it follows how many "
    "events a second a driver can carry on a core of its own. With transactions of few events the heads that workers send are "
    "nearly as many as the events: what is saved grows with a transaction.",
    "sizing": "A process that holds one table of a key and one column, and a view that counts it: the bytes of its arrangements. "
    "Workers that hold nothing, with the connections of all of them together.",
    "reclock": "Two shops with the same load on one stack, which differ in `reclock` alone, turn by turn; the writer's and a "
    "watcher's clock. The machine was shared with other work.",
    "graph": "Data and rules as above. Arguments come with one epoch, a physical batch of its own, and leave with the next. "
    "Where edges change, 100 of them are replaced between any two such epochs; the time of that is not in the figures.",
    "recursion": "Views in WITH RECURSIVE over tables; distances and components are loops by hand. First most edges at "
    "one epoch, then epochs in which edges go and others come. differential-dataflow (the same rules by hand) and FlowLog (the "
    "same rules in Datalog) follow each epoch; ascent, datafrog and Postgres begin anew. All take turns epoch by epoch, and what "
    "they hold after each has one checksum. The Rust libraries hold numbers of 32 bits, ours bigint. Postgres has the same rows, "
    "indexed, one process, and writes its answer to an unlogged table. Figures are processor seconds unless a line says by the "
    "clock, and resident bytes beyond what the process began with. The machine was shared with other work.",
    "datalog": "Programs in Datalog over tables, and two views in WITH RECURSIVE; peers and rules as above. A series: the first "
    "computation, six epochs of ten changed facts, one of a fifth of all facts, four of ten, one of a fifth. Updates alone and "
    "Bootstraps alone are ours with the strategy fixed. The parts were run one after the other, the ontology at a scale of 0.03: "
    "its large epoch FlowLog, which is left out there, had not followed after eight minutes at 0.2."
    "\n\n![Seconds of each epoch of the series, ours and the peers', with marks where ours began anew](series.svg)",
    "strategies": "Views in WITH RECURSIVE, kept by each of the strategies in a process of its own: all edges at one epoch, then "
    "epochs in which edges go, and come back in the next. Every epoch's answer has one checksum. Beside each line is `history`, "
    "which keeps every round, in the same run. Figures are processor seconds, and resident bytes a row, with the "
    "edges and what the last step sent. The machine was shared with other work.",
    "tpch": "Data and rules as above: tables begin empty, 10,000 rows a physical batch, in one random order (nations and regions "
    "first); each row at an epoch of its own, or where a line says so a batch at one epoch. Plans are the same on all sides. "
    "Ours takes rows as the product does, as upserts of tables with a primary key, each of which keeps its own arrangement, "
    "and so does dbsp; differential-dataflow's inputs keep nothing. In lines without tables nobody's do. dbsp runs with one "
    "epoch a batch alone, a transaction. Lines of SF 1 are of an earlier run. Amounts are integers, and order and limit are "
    "left to the reader, on all sides.",
    "sql": "TPC-H's own rows in one random order, each query a view of its own over the tables that it reads; a transaction is "
    "an epoch and a step. Beside it Postgres with the same rows, with indexes, one process: what one refresh of the "
    "materialized view costs, once a transaction. While loading, beside the Rust peer's plan by hand of bench-tpch, where "
    "there is one, which has integers for amounts and keeps no tables, and beside the same plans and rows in Pathway's tables "
    "(handed over as pandas frames, a row's instant that of its transaction; its answers are compared with those of our plan by "
    "hand). Figures are processor seconds of either side.",
    "views": "Five views of the demo's shop in SQL, and others that join three of its tables; a step is a transaction of seven "
    "rows over five tables, processor time of the median step. What differs in a constant shares all look-ups, and of its "
    "filters a step visits those that some row has; what differs in shape shares arrangements alone. An install compiles the "
    "view, builds it over the loaded tables and fills it; a restart does so from the batches that a checkpoint would hold.",
    "recovery": "Ready: all that `headrace run` does after its imports, but with a source and a sink in memory: a generation "
    "taken, the state carried over, mapped and its bytes checked, every part open. Caught up: what came after the checkpoint is "
    "replayed too, in transactions of ten events. Each measurement is a process of its own; the state's files are in the page "
    "cache.\n\n![Seconds against rows stored and against changes since the checkpoint](recovery.svg)",
    "memory": "Real Kafka and a real Postgres as the sink; the table is an initial snapshot, which is one epoch, and the "
    "transaction updates rows all over it. RssAnon of the sidecar's process, read every 20 ms, with a budget of 1 GiB.",
    "resident": "First what each library adds when it is loaded, one after the other, in a process that does nothing else. Then "
    "sidecars with their defaults and one Postgres sink, on real parts, over the same 400,000 rows in five tables: the views of "
    "the freshness contest, and a hundred with others beside them that differ in a constant. Arrangements are what `status` "
    "says of each. What is neither a mapped file nor an arrangement is the libraries' own memory as above, code of kernels, "
    "buffers of Kafka's client, plans, and what the allocator keeps for the next step. Most of it is libraries and code, "
    "whatever the views are; ninety-four views more take some 40 MB.",
    "stack": "The embedded stack and the sidecar of the demo's shop. Cold is a folder never used, warm the same folder again.",
}
CONTEST = (
    "![Freshness, load, processor time, memory and wrong states of Headrace, Flink SQL and Pathway over the same topics, in one "
    "run; shorter is better]"
)
"""What the contest's picture shows."""
PEERS = ("arrange", "reduce", "join", "sharing", "graph", "recursion", "datalog", "tpch", "sql")
"""The benchmarks whose peers are in the picture at the top."""
HEADLINES = {
    "freshness": ("commit → visible, p50", "commit → visible, p99", "own share (in Kafka → visible), p50",
                  "visible states that never were", "sidecar's peak memory"),
    "catchup": ("30,000 transactions of seven events, kill -9 until right",),
    "hostile": (),
    "stack": ("all parts and first fresh view, warm",),
    "dataflow": ("step of 7 rows, five views, p50",),
    # Beside the peer, goals that are missed are as many as those that are met: the page has them all.
    **dict.fromkeys(
        ("resident", "views", "arrange", "reduce", "join", "sharing", "graph", "recursion", "datalog", "strategies",
         "tpch", "sql", "workers", "spark", "shards", "sizing", "epochs", "reclock", "spark-rescale", "spark-load",
         "spark-jdbc", "checkpoint", "spark-freshness", "spark-scaling", "spark-streaming"),
        (),
    ),
}  # fmt: skip

_HEAD = """# Benchmarks

<!-- Written by `make bench docs` from build/bench/*.json, the last of which are kept in docs/figures: do not edit. -->

`make bench` runs all, `make bench-NAME` one; each prints its table and writes `build/bench/NAME.json`. Figures depend on the
machine and on what else it does: compare ratios of one run, not figures of two. A ratio above 1 says that ours is better.
All rows of a benchmark, with its machine, are folded below the summary.

## At a glance

![How many times better each leading figure is than its goal, and each benchmark than its peer](benchmarks.svg)
"""


def take_over(built: Path, kept: Path) -> list[str]:
    """Copy the figures of every benchmark that was run into `kept`; their names."""
    kept.mkdir(parents=True, exist_ok=True)
    found = sorted(built.glob("*.json")) if built.is_dir() else []
    for path in found:
        if isinstance(json.loads(path.read_text()), list):
            shutil.copyfile(path, kept / path.name)
    return [path.stem for path in found]


def read(kept: Path) -> dict[str, Rows]:
    """Benchmark → rows, in the order in which pages show them."""
    names = sorted(
        (p.stem for p in kept.glob("*.json")), key=lambda n: (FIRST.index(n) if n in FIRST else len(FIRST), n)
    )
    return {name: json.loads((kept / f"{name}.json").read_text()) for name in names}


def benchmarks(figures: Mapping[str, Rows]) -> str:
    """The page of all figures."""
    why = misses.section(figures)
    folded = [f"<details>\n<summary>Goals that are missed, and why</summary>\n\n{why}\n</details>\n"] if why else []
    sections = (_section(name, rows) for name, rows in figures.items())
    return "\n".join([_HEAD, _summary(figures), "## Each benchmark\n", *sections, *folded])


def glance(figures: Mapping[str, Rows]) -> str:
    """The picture at the top of the page."""
    leads = [row for name, rows in figures.items() for row in rows if row["name"] in _wanted(name, rows)]
    return summary.picture(leads, {_short(name): rows for name, rows in figures.items() if name in PEERS})


def _summary(figures: Mapping[str, Rows]) -> str:
    lines = []
    for name, rows in figures.items():
        row = summary.lead(rows, HEADLINES.get(name, ()))
        figure = f"{_figure(row['ours'], row['unit'])} ({_goal(row)})" if row else ""
        lines.append((_short(name), _command(name, rows), row["name"] if row else "", figure, rows))
    return summary.section(lines)


def _short(name: str) -> str:
    """A benchmark's title without what follows on its colon."""
    title = TITLES.get(name, name)
    beside = "Engine beside differential-dataflow: "
    return title.removeprefix(beside) if title.startswith("Engine") else title.partition(":")[0]


def _wanted(name: str, rows: Rows) -> Sequence[str]:
    return HEADLINES.get(name, [r["name"] for r in rows if r["goal"] is not None][:1])


def recovery(rows: Rows) -> str:
    """The picture of recovery times: against rows stored, and against changes since the checkpoint."""

    def points(of: str, end: str) -> list[tuple[float, float]]:
        return sorted((r["x"], r["ours"]) for r in rows if r.get("of") == of and r["name"].endswith(end))

    return chart([
        Panel("Ready, nothing to replay", "rows stored", "s", points("rows", "ready")),
        Panel("Caught up", "changes since the checkpoint", "s", points("changes", "caught up")),
    ])  # fmt: skip


def series(rows: Rows) -> str:
    """The picture of series of epochs."""
    return epochs_chart([Series(r["panel"], r["series"], r["ways"]) for r in rows if "series" in r])


def numbers(figures: Mapping[str, Rows]) -> str:
    """The few lines that README shows."""
    chosen = []
    for name, rows in figures.items():
        chosen += [(r["name"], _figure(r["ours"], r["unit"]), _goal(r), f"`{_command(name, rows)}`", _where(rows))
                   for r in rows if r["name"] in _wanted(name, rows)]  # fmt: skip
    head = ("what", "measured", "goal", "command", "on")
    about = "The machines did other work too; a figure of one is no measure of another. "
    beside = f"{CONTEST}(docs/contest.svg)\n\n" if systems(figures.get("freshness", ())) else ""
    return f"{beside}{table(head, chosen)}\n{about}All figures: [docs/benchmarks.md](docs/benchmarks.md).\n"


def _section(name: str, rows: Rows) -> str:
    cells = [(r["name"] + (f" ({r['note']})" if r.get("note") else ""), _figure(r["ours"], r["unit"]), _goal(r), _peer(r),
              f"{r['ratio']:.2f}" if r["ratio"] is not None and summary.measured_peer(r) else "") for r in rows]  # fmt: skip
    body = table(("what", "ours", "goal", "beside", "ratio"), cells)
    machine = _machine(rows)
    where = f"Machine: {machine}. " if machine else ""
    about = f"{ABOUT[name]}\n\n" if name in ABOUT else ""
    about += f"{CONTEST}(contest.svg)\n\n" if name == "freshness" and systems(rows) else ""
    inside = f"`{_command(name, rows)}`. {where}\n\n{about}{body}".replace(" \n", "\n")
    return f"<details>\n<summary>{TITLES.get(name, name)}</summary>\n\n{inside}\n</details>\n"


def _command(name: str, rows: Rows) -> str:
    return str(rows[0].get("command", f"make bench-{name}")) if rows else f"make bench-{name}"


def _machine(rows: Rows) -> str:
    found = rows[0].get("machine") if rows else None
    if not isinstance(found, dict) or "cores" not in found:
        return ""
    return (
        f"{found['cores']} cores ({found['cpu']}), {found['memory_mib'] / 1024:.0f} GiB, {found['system']}, Python "
        f"{found['python']}, one-minute load {found['load_1m']} at the end, {found['at']}"
    )


def _where(rows: Rows) -> str:
    """The machine and the day, in a few words."""
    found = rows[0].get("machine") if rows else None
    return (
        f"{found['cores']} cores, {found['cpu']}, {found['at']}" if isinstance(found, dict) and "cpu" in found else ""
    )


def _goal(row: Mapping[str, Any]) -> str:
    if row["goal"] is None:
        return ""
    sign = "≥" if row["unit"].endswith("/s") else "≤"
    return f"{sign} {_figure(row['goal'], row['unit'])}: {'met' if row['met'] else 'missed'}"


def _peer(row: Mapping[str, Any]) -> str:
    return f"{_figure(row['peer_value'], row['unit'])}, {row['peer']}" if summary.measured_peer(row) else ""


def _figure(value: float, unit: str) -> str:
    text = (
        f"{value:,.0f}"
        if value == int(value) or abs(value) >= 1000
        else f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2f}"
    )
    return f"{text} {unit}".rstrip()
