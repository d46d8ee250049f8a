"""Names of types that sqlglot takes from other databases and that Postgres does not have.

Always: such a word is a name like any other here, so that a column may have it, and a cast to it is refused as a type that
does not exist. Called by `parse` and `datatypes`.
"""

from __future__ import annotations

from sqlglot.dialects.postgres import Postgres
from sqlglot.tokenizer_core import TokenType

_WORDS = frozenset({
    "BIGDECIMAL", "BIGNUM", "BIGNUMERIC", "BINARY", "BLOB", "BYTE", "CLOB", "DATETIME", "DECFLOAT", "DECIMAL128",
    "DECIMAL256", "DECIMAL32", "DECIMAL64", "DOUBLE", "FIXED", "GEOGRAPHY", "GEOMETRY", "HUGEINT", "INT1", "INT128", "INT16",
    "INT256", "INT32", "INT64", "LIST", "LONG", "LONGBLOB", "LONGTEXT", "LONGVARCHAR", "MAP", "MEDIUMBLOB", "MEDIUMINT",
    "MEDIUMTEXT", "NULLABLE", "NUMBER", "NVARCHAR", "NVARCHAR2", "OBJECT", "SHORT", "STR", "STRING", "STRUCT", "TIMESTAMPLTZ",
    "TIMESTAMPNTZ", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TIME_NS", "TINYBLOB", "TINYINT", "TINYTEXT", "UHUGEINT", "UINT",
    "UINT128", "UINT256", "VARBINARY", "VARCHAR2", "VARIANT", "VECTOR",
})  # fmt: skip

DECLARED = frozenset({"double", "string", "serial", "smallserial", "bigserial"})
"""Types that a table's declaration may name, and a query may not."""

KEYWORDS: dict[str, TokenType] = {
    word: kind for word, kind in Postgres.Tokenizer.KEYWORDS.items() if word not in _WORDS
}
"""What the tokenizer takes for more than a name."""
