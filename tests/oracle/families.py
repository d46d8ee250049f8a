"""The families of types that the grammar draws from, with their literals and with values that fail.

Always: a column whose type has no family is left alone by expressions. Read by `grammar`.
"""

from __future__ import annotations

NUMBER, TEXT, BOOLEAN, DATE, STAMP, FLOAT = "number", "text", "boolean", "date", "stamp", "float"
FAMILIES = {
    "smallint": NUMBER, "integer": NUMBER, "bigint": NUMBER, "text": TEXT, "varchar": TEXT, "boolean": BOOLEAN,
    "date": DATE, "timestamp": STAMP, "double": FLOAT,
}  # fmt: skip
LITERALS = {
    NUMBER: ("0", "1", "2", "3", "5", "-1", "12.5", "50", "2.50"),
    TEXT: ("'north'", "'open'", "'/'", "'Ab'", "''", "'s1'", "'b'"),
    BOOLEAN: ("true", "false"),
    DATE: ("date '2024-03-01'", "date '2000-02-29'"),
    STAMP: ("timestamp '2024-03-01 00:00:00'", "timestamp '2023-12-31 12:30:00.5'"),
    FLOAT: ("1.5::double precision", "0::double precision"),
}

FAILING = {
    NUMBER: ("12 / {}", "sqrt({})", "ln({})", "(1000 * {})::smallint", "{} % (length({}::text) - 2)"),
    TEXT: ("{}::integer", "{}::date", "(select o.id from orders o where o.status = {})", "chr(length({}) - 1)"),
    BOOLEAN: ("1 / (case when {} then 1 else 0 end)", "({}::text || '')::numeric"),
    DATE: ("make_date(extract(day from {})::integer, 2, 29)", "({} + 2147483647)"),
    STAMP: ("({}::text)::date + 2147483647", "1 / extract(second from {})"),
}
"""Values that fail for some values of a column."""


def family_of(spelled: str) -> str | None:
    """The family of a column's type; None for those that expressions leave alone."""
    word = spelled.split("(")[0].split()[0]
    return NUMBER if word == "numeric" else FAMILIES.get(word)
