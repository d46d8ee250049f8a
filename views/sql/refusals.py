"""Functions that a view cannot use, by why: the words of the refusals, in one place for the binder and the docs.

Always: a name stands in one set only. Read by the binder's functions.
"""

from __future__ import annotations

VOLATILE = frozenset(
    {
        "array_sample", "array_shuffle", "clock_timestamp", "current_database", "current_schema", "current_setting", "currval",
        "gen_random_uuid", "lastval", "nextval", "now", "pg_backend_pid", "pg_sleep", "random", "random_normal",
        "setseed", "setval", "statement_timestamp", "timeofday", "transaction_timestamp", "txid_current",
        "uuid_generate_v4", "uuidv4", "uuidv7", "version",
    }
)  # fmt: skip
LATER_AGGREGATES = frozenset(
    {
        "xmlagg",
    }
)  # fmt: skip
WINDOWS = frozenset(
    {
        "cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile", "percent_rank",
        "rank", "row_number",
    }
)  # fmt: skip

SUBQUERY = "use it in WHERE, or join with it in FROM"
VOLATILE_HINT = "a view is a function of its tables: compare with a column, or filter when reading the view"
