"""The rows and the expressions of the oracle: columns of every type with their extremes, and a table of expressions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from headrace.engine.operators.expressions.core.coercion import category
from headrace.engine.schema import DataType
from tests.oracle.expression_builder import (
    Built,
    call,
    case,
    cast,
    coalesce,
    column,
    number,
    op,
    prefix,
    suffix,
    text,
    typed,
    within,
)

SMALL = ["0", "1", "-1", "2", "3", "-7", "10", "100", "32767", "-32768", "181", "-5"]
INT = [*SMALL, "46341", "65536", "2147483647", "-2147483648", "123456", "-99999", "40"]
BIG = [*INT, "3037000500", "9223372036854775807", "-9223372036854775808", "4294967296", "-12345678901"]
MONEY = ["0.00", "0.01", "-0.01", "1.50", "2.25", "-2.25", "99.99", "100.00", "9999999999.99", "-9999999999.99", "2.50",
         "3.50", "0.50", "-0.50", "1234.56", "12.00", "5.00"]  # fmt: skip
FINE = ["0.0000", "0.0001", "-1.2345", "1.5000", "9999999999999999.9999", "-9999999999999999.9999", "2.2500", "0.0050",
        "1.0050", "100.0000", "1.0000", "-0.5000"]  # fmt: skip
WIDE = ["0", "0.00", "1.0", "1.00", "-3.14159265358979", "NaN", "Infinity", "-Infinity", "1e30", "1e-20", "2.5", "3.50",
        "123456789012345678901234567890.123456789", "-0.5", "7", "0.1", "10000", "9999.9999", "1e40"]  # fmt: skip
REAL = ["0", "-0", "1", "1.5", "-2.5", "0.5", "3.4028235e+38", "-3.4028235e+38", "1e-45", "NaN", "Infinity",
        "-Infinity",
        "1e6", "123456", "1234567", "1e-4", "1e-5", "16777216", "0.1", "2147483648", "32767.5", "1e10"]  # fmt: skip
FLOAT = [*REAL[:6], "1.7976931348623157e308", "-1.7976931348623157e308", "5e-324", "NaN", "Infinity", "-Infinity",
        "1e15",
         "1e14", "123456789012345", "999999999999999.9", "0.0001", "0.00001", "0.1", "0.30000000000000004", "1e200",
         "-1e200", "1e-200", "9223372036854775807", "2147483647.5", "4.5", "1e22", "1e300"]  # fmt: skip
TEXTS = ["", "a", "abc", "ABC", "  padded ", "a%b", "a_b", "a\\b", "ünïcödé", "ÄÖÜ straße", "日本語", "😀 smile",
         "x,y,z",
         "line\nbreak", "tab\t", "abcabcabc", "Hello World", "12", " 42 ", "-7", "1.5", "1e3", "true", "no",
         "2024-02-29",
         "NaN", "a b  c", "\u00a0nbsp", "e\u0301", "ǆ", "ß", "O'Brien", "0x1F", "1_000", "99999999999999999999",
         "İ", "ς"]  # fmt: skip
NAMES = ["", "a", "abc", "ABC  ", "wörld", "日本", "x y", "abcdefgh", "Zed", "a%"]
DATES = ["2024-02-29", "1970-01-01", "1969-12-31", "2000-01-31", "0001-01-01", "0044-03-15 BC", "9999-12-31",
        "infinity",
         "-infinity", "2023-12-31", "2021-01-03", "1900-03-01", "5874897-12-31", "4713-11-24 BC", "2024-12-30",
         "12000-06-01"]  # fmt: skip
STAMPS = ["2024-02-29 12:34:56.789", "1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2000-01-31 00:00:00.1",
          "0001-01-01 00:00:00", "0044-03-15 12:00:00 BC", "9999-12-31 23:59:59", "infinity", "-infinity",
          "2021-01-03 05:06:07", "1900-12-31 10:20:30.000001", "294000-01-01 00:00:00", "4713-11-24 00:00:00 BC",
          "2001-01-01 00:00:00", "12000-06-01 01:02:03", "2024-05-31 08:00:00"]  # fmt: skip
TIMES = ["00:00:00", "23:59:59.999999", "12:34:56.7", "24:00:00", "01:02:03"]

COLUMNS: list[tuple[str, str, list[str]]] = [
    ("i2a", "smallint", SMALL), ("i2b", "smallint", SMALL),
    ("i4a", "integer", INT), ("i4b", "integer", INT),
    ("i8a", "bigint", BIG), ("i8b", "bigint", BIG),
    ("n2a", "numeric(12,2)", MONEY), ("n2b", "numeric(12,2)", MONEY),
    ("n4", "numeric(20,4)", FINE), ("nw", "numeric", WIDE), ("nv", "numeric", WIDE),
    ("f4a", "real", REAL), ("f4b", "real", REAL),
    ("f8a", "double precision", FLOAT), ("f8b", "double precision", FLOAT),
    ("ba", "boolean", ["t", "f"]), ("bb", "boolean", ["t", "f"]),
    ("ta", "text", TEXTS), ("tb", "text", TEXTS),
    ("va", "varchar(10)", NAMES), ("ca", "character(8)", NAMES), ("cb", "character(8)", NAMES),
    ("da", "date", DATES), ("db", "date", DATES),
    ("sa", "timestamp", STAMPS), ("sb", "timestamp", STAMPS),
    ("za", "timestamptz", STAMPS),
    ("tm", "time", TIMES),
    ("bya", "bytea", ["\\x", "\\x00ff", "\\x616263", "\\xdeadbeef"]),
    ("u", "uuid", ["00000000-0000-0000-0000-000000000000", "123e4567-e89b-12d3-a456-426614174000"]),
    ("k", "integer", [str(i) for i in range(-4, 13)]), ("p", "text", ["a%", "%b%", "_b_", "%", "", "abc", "a\\%b",
    "x\\",
     "%\\", "A%", "Ä%", "%c", "a_b", "%日%"]),
]  # fmt: skip
TYPES = {name: DataType.parse(sql) for name, sql, _ in COLUMNS}
C = {name: column(name, i, TYPES[name]) for i, (name, _, _) in enumerate(COLUMNS)}


def rows(count: int, seed: int) -> list[list[str | None]]:
    """`count` random rows as text images, one NULL in ten; the first rows walk through every value of each column."""
    chance = random.Random(seed)
    return [
        [
            pool[i % len(pool)]
            if i < len(pool) and name[-1] != "b"
            else None
            if chance.random() < 0.1
            else chance.choice(pool)
            for name, _, pool in COLUMNS
        ]
        for i in range(count)
    ]


def mild(datatype: DataType, value: str) -> bool:
    """Whether a value stays on the fast ways: plain characters, finite, small, not zero."""
    if category(datatype.kind) == "N":
        return bool(re.fullmatch(r"-?\d{1,3}(\.\d+)?", value)) and float(value) != 0
    return value.isascii() and not re.search("infinity|BC|^294|^58|^12000", value)


def mild_rows(count: int, seed: int) -> list[list[str | None]]:
    """`count` random rows of mild values, without NULLs, on which nearly nothing fails."""
    chance = random.Random(seed)
    pools = [[v for v in pool if mild(TYPES[name], v)] for name, _, pool in COLUMNS]
    return [[chance.choice(pool) for pool in pools] for _ in range(count)]


NUMBERS = ["i2a", "i4a", "i8a", "n2a", "n4", "nw", "f4a", "f8a"]
SECOND = {"i2a": "i2b", "i4a": "i4b", "i8a": "i8b", "n2a": "n2b", "n4": "n2b", "nw": "nv", "f4a": "f4b", "f8a": "f8b"}
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


def _arithmetic() -> Iterator[Built]:
    for left in NUMBERS:
        for right in NUMBERS:
            for name in ("+", "-", "*", "/", "%"):
                other = C[SECOND[right]] if SECOND[right] in C else C[right]
                if name == "%" and {left, right} & {"f4a", "f8a"}:
                    continue
                yield op(C[left], name, other)
            yield op(C[left], "<", C[SECOND[right]])
            yield op(C[left], "=", C[SECOND[right]])
        for name in ("-", "+"):
            yield prefix(name, C[left])
        yield call("abs", [C[left]])
        for constant in (number("2"), number("0"), number("1.5"), number("0.00"), text("3"), number("3000000000")):
            yield op(C[left], "+", constant)
            yield op(C[left], "*", constant)
            yield op(C[left], "<=", constant)
            yield op(constant, "-", C[left])
            if left not in ("f4a", "f8a"):
                yield op(C[left], "%", constant)
            yield op(C[left], "/", constant)
            yield op(constant, "/", C[left])
        for name in ("round", "ceil", "floor", "trunc", "sign"):
            yield call(name, [C[left]])
        if left not in ("n2a", "n4", "nw"):
            yield call("sqrt", [C[left]])
            yield call("power", [C[left], C["f8b"]])
            yield op(C[left], "^", number("2"))
    for left in ("n2a", "n4", "nw", "i4a"):
        for digits in ("0", "1", "3", "20"):
            yield call("round", [C[left], number(digits)])
            yield call("trunc", [C[left], number(digits)])
        yield call("round", [C[left], C["k"]])
        yield call("trunc", [C[left], prefix("-", number("2"))])
        yield call("mod", [C[left], C["i4b"]])
    yield op(op(C["n4"], "*", C["n4"]), "*", C["n2a"])
    yield op(op(C["n2a"], "*", C["n2b"]), "/", C["n4"])
    yield op(op(C["i4a"], "/", C["i4b"]), "+", C["i2a"])
    for name in ("exp", "ln", "log"):
        yield call(name, [C["f8a"]])


def _comparisons() -> Iterator[Built]:
    pairs = [("ba", "bb"), ("ta", "tb"), ("ta", "va"), ("va", "ca"), ("ca", "cb"), ("ta", "ca"), ("da", "db"),
    ("sa", "sb"),
             ("da", "sa"), ("da", "za"), ("sa", "za"), ("tm", "tm"), ("bya", "bya"), ("u", "u"), ("nw", "nv"),
             ("n2a", "n4"),
             ("f4a", "f8a"), ("i8a", "f8b"), ("i8a", "nw"), ("i2a", "i8b"), ("nw", "f8a")]  # fmt: skip
    for a, b in pairs:
        for name in COMPARISONS:
            yield op(C[a], name, C[b])
        for name in ("is distinct from", "is not distinct from"):
            yield op(C[a], name, C[b])
        yield call("nullif", [C[a], C[b]])
        yield within("in", C[a], [C[b], C[a]])
        yield within("not in", C[a], [C[b], text(None)])
        for name in ("greatest", "least"):
            yield call(name, [C[a], C[b], C[a]])
        yield coalesce(C[a], C[b])
        yield case([(C["ba"], C[a]), (C["bb"], C[b])], text(None))
    for name, value in (("ta", "abc"), ("ca", "abc "), ("va", "abc"), ("da", "2024-02-29"), ("sa",
    "2024-02-29 12:34:56.789"),
                        ("nw", "1.0"), ("u", "123E4567E89B12D3A456426614174000"), ("i4a", " 40 "), ("f8a",
                        "0.1"), ("ba", "y"),
                        ("bya", "\\x616263"), ("n2a", "1.5")):  # fmt: skip
        for operator in COMPARISONS:
            yield op(C[name], operator, text(value))
        yield within("in", C[name], [text(value), text(None)])
        yield suffix(C[name], "is null")
        yield suffix(C[name], "is not null")


def _booleans() -> Iterator[Built]:
    ba, bb = C["ba"], C["bb"]
    positive = op(op(C["i4a"], "/", C["k"]), ">", number("0"))
    for name in ("and", "or"):
        yield op(ba, name, bb)
        yield op(ba, name, positive)
        # What decides stands first: where it stands behind what fails Postgres fails, and a view does not (docs/sql.md).
        yield op(op(ba, name, bb), name, positive)
        yield op(suffix(positive, "is null"), name, positive)
        yield op(ba, name, text(None))
        yield op(positive, name, cast(text("f"), "boolean"))
        yield op(positive, name, cast(text("t"), "boolean"))
    yield prefix("not", positive)
    for word in ("true", "not true", "false", "not false", "unknown", "not unknown", "null"):
        yield suffix(ba, f"is {word}")
        yield suffix(positive, f"is {word}")
    yield case([(op(C["k"], "=", number("0")), number("0"))], op(C["i4a"], "/", C["k"]))
    yield case([(positive, number("1")), (ba, op(C["i4a"], "+", number("2147483647")))], text(None))
    yield case([(ba, C["n2a"])], number("0"))
    yield case([(ba, C["i4a"]), (bb, C["f8a"])], C["n2a"])
    yield case([(ba, C["va"]), (bb, C["ta"])], C["ca"])
    yield case([(ba, C["da"])], C["za"])
    yield coalesce(C["n2a"], number("0"))
    yield coalesce(op(C["i4a"], "/", C["k"]), C["i4b"], number("7"))
    yield coalesce(C["i4b"], op(C["i4a"], "/", C["k"]))
    yield coalesce(C["ta"], text("none"))
    yield op(op(C["i4a"], "/", C["k"]), "+", cast(text(None), "integer"))


def _texts() -> Iterator[Built]:
    one = ("lower", "upper", "length", "char_length", "octet_length", "btrim", "ltrim", "rtrim", "reverse", "md5",
    "initcap",
           "ascii")  # fmt: skip
    for name in one:
        for arg in ("ta", "va", "ca"):
            yield call(name, [C[arg]])
    for arg in ("bya",):
        for name in ("length", "octet_length", "md5"):
            yield call(name, [C[arg]])
    for pattern in ("a%", "%b", "%b%", "_b_", "%", "", "abc", "a\\%b", "a\\_b", "a.c", "%\n%", "x\\", "%\\", "Ä%",
    "a%c", "_", "a\\b",
                    "%日_語%", "(%", "%é%"):  # fmt: skip
        for name in ("like", "not like", "ilike", "not ilike"):
            yield op(C["ta"], name, text(pattern))
        yield op(C["ca"], "like", text(pattern))
        sql = f"({C['ta'].sql} like {text(pattern).sql} escape '_')"
        yield call("like", [C["ta"], text(pattern), text("_")], sql)
    for name in ("like", "ilike"):
        yield op(C["ta"], name, C["p"])
    for arg in ("ta", "va", "ca"):
        for start in (prefix("-", number("2")), number("0"), number("1"), number("3"), C["k"]):
            yield call("substring", [C[arg], start])
            for count in (number("0"), number("2"), number("2147483647"), C["k"], prefix("-", number("1"))):
                yield call("substr", [C[arg], start, count])
        for count in (number("0"), number("2"), prefix("-", number("2")), C["k"]):
            for name in ("left", "right", "lpad", "rpad", "repeat"):
                yield call(name, [C[arg], count])
            for name in ("lpad", "rpad"):
                yield call(name, [C[arg], count, text("xyz")])
                yield call(name, [C[arg], number("12"), C["tb"]])
            yield call("split_part", [C[arg], text(","), count])
        for other in (text("a"), text(""), text("ab"), text("日"), C["tb"]):
            for name in ("btrim", "ltrim", "rtrim", "strpos", "starts_with"):
                yield call(name, [C[arg], other])
            yield call("replace", [C[arg], other, text("_")])
            yield call("replace", [C[arg], text("b"), other])
            yield call("translate", [C[arg], text("abc"), other])
            yield call("split_part", [C[arg], other, number("2")])
    for a in ("ta", "va", "ca", "i4a", "n2a", "f8a", "ba", "da", "sa", "za", "bya", "u", "nw"):
        if a != "bya":
            yield op(C["ta"], "||", C[a])
            yield op(C[a], "||", C["tb"])
            yield op(C[a], "||", text("x")) if a in ("ta", "va", "ca") else op(C[a], "||", cast(text("x"), "text"))
        yield call("concat", [C[a], text("-"), C["tb"]])
        yield call("concat_ws", [text(","), C[a], C["tb"]])
        yield call("concat_ws", [C["tb"], C[a], text(None), C["ta"]])
    yield op(C["ca"], "||", C["cb"])
    yield op(C["bya"], "||", C["bya"])
    yield call("chr", [C["i4a"]])
    yield call("to_hex", [C["i4a"]])
    yield call("to_hex", [C["i8a"]])


CASTS = {
    "i2a": ["integer", "bigint", "numeric", "numeric(5,2)", "real", "double precision", "text", "varchar(2)",
    "char(3)"],
    "i4a": ["smallint", "bigint", "numeric", "numeric(5,2)", "numeric(38,10)", "real", "double precision",
    "boolean", "text"],
    "i8a": ["smallint", "integer", "numeric", "numeric(10,0)", "numeric(20,-3)", "real", "double precision", "text"],
    "n2a": ["smallint", "integer", "bigint", "numeric", "numeric(5,1)", "numeric(20,6)", "numeric(3,0)",
    "numeric(5,-2)", "real",
            "double precision", "text", "varchar(3)"],
    "n4": ["integer", "bigint", "numeric(20,2)", "numeric(38,20)", "double precision", "text", "numeric(2,2)",
    "numeric(4,6)"],
    "nw": ["smallint", "integer", "bigint", "numeric(38,10)", "numeric(5,2)", "real", "double precision", "text"],
    "f4a": ["smallint", "integer", "bigint", "numeric", "numeric(12,3)", "double precision", "text"],
    "f8a": ["smallint", "integer", "bigint", "numeric", "numeric(12,3)", "real", "text", "varchar(5)"],
    "ba": ["integer", "text", "varchar(2)"],
    "ta": ["smallint", "integer", "bigint", "numeric", "numeric(6,2)", "real", "double precision", "boolean",
    "varchar(3)",
           "char(4)", "uuid", "varchar", "bpchar"],
    "va": ["text", "char(3)", "varchar(2)", "bpchar"],
    "ca": ["text", "varchar(3)", "varchar", "char(3)", "char(12)", "bpchar"],
    "da": ["timestamp", "timestamptz", "text"],
    "sa": ["date", "timestamptz", "time", "text"],
    "za": ["date", "timestamp", "time", "text"],
    "tm": ["text"], "bya": ["text"], "u": ["text"],
}  # fmt: skip


def _casts() -> Iterator[Built]:
    for name, targets in CASTS.items():
        for target in targets:
            yield cast(C[name], target)
            if target != "text" and name not in ("ta", "va", "ca") and target[:4] != "bool":
                yield cast(cast(cast(C[name], target), "text"), target)
    for name in ("ca", "va"):
        yield cast(C[name], "integer")
    for value in ("5", " 7 ", "abc", "1.5", "0x10", "", "-0", "1_0", "+3", "1e2", "99999"):
        for target in ("smallint", "numeric", "double precision", "numeric(4,1)"):
            yield cast(cast(coalesce(text(value), C["ta"]), "text"), target)
    for value in ("\\x4g", "\\x123", "abc\\\\", "\\001", "\\9", "plain"):
        yield cast(cast(coalesce(text(value), C["ta"]), "text"), "bytea")
    for value in ("2024-02-30", "2024-1-5", "infinity", "0000-01-01", "2024-02-29 25:00", "10000-01-01",
    "2024-02-29T10:11:12.1234567Z",
                  "2024-02-29 10:11+05:30", "2024-13-01", "0044-03-15 BC", "", "junk"):  # fmt: skip
        for target in ("date", "timestamp", "timestamptz"):
            yield cast(cast(coalesce(text(value), C["ta"]), "text"), target)


def _calendar() -> Iterator[Built]:
    for days in (C["k"], number("1"), prefix("-", number("400")), C["i4a"]):
        yield op(C["da"], "+", days)
        yield op(C["da"], "-", days)
        yield op(days, "+", C["da"])
    yield op(C["da"], "-", C["db"])
    for spelled in ("1 day", "1 month", "-13 months", "1 year 2 mons 3 days 04:05:06.5", "90 minutes",
    "2 weeks ago", "P1M2DT3H",
                    "1000 years", "1.5 hours"):  # fmt: skip
        interval = typed("interval", spelled)
        for name in ("da", "sa", "za"):
            yield op(C[name], "+", interval)
            yield op(C[name], "-", interval)
    fields = ["century", "day", "decade", "dow", "doy", "epoch", "hour", "isodow", "isoyear", "microseconds",
    "millennium",
              "milliseconds", "minute", "month", "quarter", "second", "week", "year", "timezone", "bogus"]  # fmt: skip
    for field in fields:
        for name in ("da", "sa", "za", "tm"):
            sql = f"extract({field} from {C[name].sql})"
            yield call("extract", [text(field), C[name]], sql)
            yield call("date_part", [text(field), C[name]])
        for name in ("da", "sa", "za"):
            yield call("date_trunc", [text(field), C[name]])
    yield call("make_date", [C["i4a"], C["k"], C["k"]])
