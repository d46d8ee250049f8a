"""Functions that a view cannot use, by why: the words of the refusals, in one place for the binder and the docs.

Always: a name stands in one set only. Read by the binder's functions.
"""

from __future__ import annotations

import re

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

NOT_HERE = re.compile(
    r"(plain|phrase|websearch_)?to_ts(vector|query)|ts_\w+|(array|json|jsonb)_to_tsvector|tsvector_\w+|setweight|numnode|querytree"
    r"|point|box|circle|line|lseg|path|polygon|area|center|diameter|height|width|radius|slope|npoints|pclose|popen|isclosed|isopen"
    r"|xml\w*|xpath\w*|\w+_to_xml\w*|pg_\w+|has_\w+_privilege|lo_\w+|inet_(client|server)_\w+|\w+_description|set_config"
)
"""Names of functions that Postgres has, of texts searched, of geometry, of XML and of the server, and Headrace has not."""

_CALLED = re.compile(r"function .* does not exist")
_SIGN = re.compile(r"operator does not exist: (\S+)(.*)")


def matching_hint(reason: str) -> str:
    """Postgres's hint where no operator or function takes such arguments; nothing for another reason.

    >>> matching_hint("operator does not exist: - text")
    'No operator matches the given name and argument type. You might need to add an explicit type cast.'
    """
    found = _SIGN.fullmatch(reason)
    if found is None and not _CALLED.fullmatch(reason):
        return ""
    if found is not None and not (found[1][:1].isalpha() or found[1][:1] == '"'):
        return "No operator matches the given name and argument type. You might need to add an explicit type cast."
    what = "function" if found is None else "operator"
    return f"No {what} matches the given name and argument types. You might need to add explicit type casts."
