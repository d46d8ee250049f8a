"""Writes docs/sql.md from the corpus of views that the tests compare with Postgres, and from the catalogue of
expressions. Run it as the page's first line says; with --check it only tells whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from headrace.engine.operators.expressions.core.functions import catalogue, fallback_users
from headrace.engine.operators.expressions.core.sets import MOST
from headrace.views.sql.aggregates.aggregate_calls import AGGREGATES
from headrace.views.sql.aggregates.ordered_set_aggregates import PLACES
from headrace.views.sql.unsupported import LATER_AGGREGATES, VOLATILE, WINDOWS
from tests.views.corpus import REFUSED, SUPPORTED
from tests.views.decided import DECIDED

COMMAND = "python -m tests.views.docs"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "sql.md"


COSTS = (
    "## What a change costs",
    "A changed row costs as much in a group of ten rows as in one of ten million: count, sum, avg, min, max, bool_and,"
    " bool_or and DISTINCT follow the change, alone or side by side. Two things read more of a group. Sums and averages"
    " of real, of double precision and of numeric without a declared scale add up its values anew, exactly. And where"
    " the least or greatest value goes, what shares its first 64 bits is compared: texts that begin with the same"
    " eight bytes, numerics that share 13 digits or have more than 18. string_agg, percentiles, mode, bit_and and their"
    " like, and variance of floats or of distinct values, array_agg, the aggregates of JSON, corr and the regressions, read"
    " their group in Python.",
    "A function that returns a set makes rows of each row as it changes, and keeps nothing; one row gives at most"
    f" {MOST:,} of them. Arrays and JSON are held as their text.",
    "A LEFT JOIN and IN (SELECT …) keep each key of their right side once, beside its rows, but for a table's primary"
    " key, which the table itself has once; a key that comes again or goes once more moves no row. Where an outer join's"
    " condition is more than equalities, the keys of the rows that have a partner are kept too.",
    "A subquery becomes a join, however often it is asked: where it reads the query around it by equalities alone, by"
    " those; else by the distinct values that it reads. What is correlated by another condition, or joined without an"
    " equality, looks at every pair of rows, and `headrace validate` warns of it.",
    "A recursive query is run as a fixpoint where its recursive term is proved to give for each row by itself what it gives for"
    " all of them: selections, projections, joins with other tables, functions that return sets, the kept side of outer joins."
    " There a change costs the rounds that it reaches. For every other term, and where equal values may look different (numerics"
    " of any scale), the rows of each round are held apart, as Postgres's working table is, and a change costs more. `headrace"
    " explain` says which of the two a query is, and why. A recursion that takes more work in a step than"
    " `engine: {step_work: …}` of the configuration is late: it is evaluated between the steps of the other views, and comes back"
    " whole by itself ([Datalog](datalog.md)).",
    "ORDER BY … LIMIT reads of the order what it keeps; where a subquery says how many, all of the order is numbered anew, as by"
    " a window function. A window function other than an aggregate over a whole partition"
    " computes the partition of a changed row anew, in columns; what does not change is not sent.",
)


def page() -> str:
    """The text of the page."""
    parts = [
        f"<!-- Written by `{COMMAND}`: do not edit. -->",
        "# The SQL of views",
        "A view is one SELECT in Postgres's SQL. What Postgres answers is the answer: types, NULLs, rounding, names of"
        " columns and error messages are its own. What is not supported is refused before anything starts, with file,"
        " line, column and reason.",
        "## Supported",
        "Each line is a view that the tests keep through random transactions and compare with Postgres after each one"
        " (`tests/oracle/test_views.py`).",
        table(("Feature", "Shown by"), [(s.feature, f"`{s.sql}`") for s in SUPPORTED]),
        "`headrace replay script.sql` compares any SQL with Postgres in the same way: each SELECT of a script is answered by"
        " a view that stays while later transactions change its tables (docs/cli.md). There a SELECT's columns may be without"
        " names, or share one, which a view's may not.",
        "## Refused",
        table(("Feature", "For example", "Reason given"), [(r.feature, f"`{r.sql}`", r.reason) for r in REFUSED]),
        f"Aggregates that come later: {names(LATER_AGGREGATES)}.",
        f"Functions whose answer is not a function of the tables: {names(VOLATILE)}.",
        "## Errors",
        "A row whose expression fails (division by zero, overflow, text that is no number) puts the view in error until"
        " the row is gone, as the same SELECT would fail in Postgres. Errors follow SQL's order of clauses: FROM,"
        " WHERE, GROUP BY, HAVING, SELECT. What constants alone make fail (`1 / 0`, also where a subquery gives a constant) is"
        " refused, as Postgres fails before it reads a row, unless CASE, COALESCE, AND or OR decide without it. What WHERE or a"
        " join keeps from a row is never asked of it, even where Postgres's planner would ask; what is not read by the view is"
        " not computed. An error inside of a subquery with FROM counts for every row that it is asked for, even where CASE"
        " does not look at its answer.",
        "A row is out where any condition of WHERE, of HAVING or of a join's ON is false or NULL, and in error only where one"
        " fails and none of them is; inside an expression a false operand decides AND, and a true one OR. So whatever order"
        " Postgres tries conditions in, where it has rows a view has the same. Where the order that it takes makes it fail, a"
        " view has rows: this is the one exception to what Postgres answers being the answer.",
        table(
            ("Postgres fails, the view has rows", "For example", "Postgres says"),
            [(d.feature, f"`{d.sql}`", d.error) for d in DECIDED],
        ),
        "Expressions that tables are joined by, where nothing else joins them, are computed of each row that its table's own"
        " conditions keep; an error of one counts although no other table's row meets it, as in Postgres.",
        *COSTS,
        "## Equal values that look different",
        "1.0 and 1.00, '1 day' and '24 hours', the jsonb 1 and 1.0, an instant in two time zones are equal, and so GROUP BY,"
        " DISTINCT, UNION, joins and windows take them for one value. Postgres shows the one that it met first; here it is the"
        " least of their texts that is there, which no order of rows changes.",
        "## Domains",
        "A column of a domain is one of its base type, and so is a value that is cast to one: `pg_typeof` names the base type,"
        " where Postgres names the domain. A domain that checks its values is refused in casts. How many digits of its seconds a"
        " `timestamp(0)` keeps in a record of a table's row (`json_populate_record(NULL::t, …)`) is known where headrace.yaml"
        " declares the column's type; elsewhere it keeps six.",
        "## Keys",
        "A view's key is the one it declares, or else the smallest set of NOT NULL columns that its SQL proves to tell"
        " rows apart (primary keys kept through joins to one row, GROUP BY columns, DISTINCT), or else such a set of columns"
        " that may be NULL, equal then, unless it is all of them, or else none: then rows are kept with their multiplicity. A"
        " view of one row at most has a key of no columns. A declared key that is not proved is checked while the view runs: two"
        " rows for one key put the view in error.",
        "## Functions and operators",
        f"Aggregates: {names(AGGREGATES)}, and {names(PLACES)} WITHIN GROUP;"
        " each with FILTER, and with DISTINCT where it means something. string_agg without"
        " ORDER BY joins its texts in their order; so do array_agg and the aggregates of JSON, whose order Postgres leaves open.",
        f"Window functions: {names(WINDOWS)}, and the aggregates over ROWS, GROUPS and RANGE frames, with EXCLUDE too.",
        functions(),
        f"{IN_PYTHON} Evaluated in Python, once per distinct value; all others in columns.",
    ]
    return "\n\n".join(parts) + "\n"


IN_PYTHON = "†"


def names(words: frozenset[str] | set[str]) -> str:
    """The words as code, sorted."""
    return ", ".join(f"`{w}`" for w in sorted(words))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def functions() -> str:
    """The catalogue of expressions: one line a name, with its parameters and results; then the casts."""
    found: dict[str, list[str]] = defaultdict(list)
    casts: dict[str, list[str]] = defaultdict(list)
    slow = set(fallback_users())
    for kind, written, result in catalogue():
        if kind == "cast":
            source, target = written.split(" as ")
            casts[source].append(target if result == "implicit" else f"{target} ({result})")
        else:
            name, _, parameters = written.partition("(")
            found[name].append(f"({parameters} → {result}{IN_PYTHON * (written in slow)}")
    rows = [(f"`{name}`", "; ".join(some)) for name, some in sorted(found.items())]
    cast_rows = [(source, ", ".join(targets)) for source, targets in sorted(casts.items())]
    return table(("Name", "Parameters → result"), rows) + "\n\n" + table(("From", "Cast to"), cast_rows)


def main() -> int:
    """Writes the page, or with --check compares it."""
    text = page()
    if "--check" in sys.argv[1:]:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        if not same:
            sys.stderr.write(f"{PAGE.name} is not up to date: run {COMMAND}\n")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
