"""The columns and the expressions of `test_functions`: what each function makes of ordinary, extreme and wrong values."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator

from tests.oracle import making_cases, reading_cases, template_cases, type_cases

COLUMNS: dict[str, tuple[str, list[str]]] = {
    "i": ("integer", ["0", "1", "-1", "7", "12", "-5", "100", "2147483647", "-2147483648", "33", "20"]),
    "k": ("integer", ["0", "1", "2", "3", "-1", "-2", "5", "-4", "10"]),
    "b": ("bigint", ["0", "1", "-6", "48", "9223372036854775807", "-9223372036854775808", "1000000007", "36"]),
    "n": ("numeric", ["0", "0.00", "1", "1.000", "-1", "2.5", "-2.50", "0.1", "0.0000001", "3.14159265358979", "10",
                      "100.0", "99999.99999", "-0.75", "1e10", "1e-12", "123456789012345678901234567890.5", "NaN",
                      "Infinity", "-Infinity", "7.3890560989", "0.5", "1200.3400", "6999", "4", "1e40", "0.99999"]),
    "m": ("numeric", ["0", "1", "2", "-1", "0.5", "-0.5", "3.0", "10", "1.5", "-2.25", "NaN", "Infinity", "-Infinity",
                      "12.34567", "0.001", "33", "100", "-7", "1e3", "50.5"]),
    "s": ("numeric(12,2)", ["0.00", "1.00", "2.50", "-1.75", "99.99", "100.00", "-3.00", "1234567.89", "0.01"]),
    "d": ("double precision", ["0", "-0", "1", "-1", "0.5", "-0.5", "2", "3.7", "-2.5", "1e10", "1e308", "1e-308",
                               "5e-324", "Infinity", "-Infinity", "NaN", "0.1", "30", "45", "90", "-180", "720.5", "27",
                               "1e-5", "710", "-750", "100"]),
    "e": ("double precision", ["0", "1", "-1", "2", "0.5", "-0.5", "3", "1e3", "Infinity", "-Infinity", "NaN", "-2",
                               "0.3333333333333333", "10"]),
    "x": ("text", ["", "a", "ab", "abc", "abcabc", "foobarbequebaz", "XyZ", "foo bar\nbaz", "a.b*c", "aaaa", "a1b22c333",
                   "the quick brown fox", "2024-01-31", "x[y]z", "it's", "back\\slash", "%_", "ABC abc", "a,b,,c", "  pad ",
                   "xyzzy", "12.5", "AbAbB", "fOO", "foofoo", "abcd", "ünï"]),
    "p": ("text", ["a", "a*", "a+", "b.*b", "(b[^b]+)(b[^b]+)", "^a", "c$", "(a|ab)(c|bcd)?", "x*?", "(a*)(ab)*(b*)", ".*?b",
                   "[[:digit:]]+", "\\d{2,}", "\\mqu\\w+", "(?i)abc", "[^a-c]", "(", "a**", "[z-a]", "(foo|foobar|b)",
                   "(a+|b+)+", "(?=b)", "(?<!a)b", "\\s+", "(a)|(b)", "()", "a{2}", "a{1,2}?", "\\.", "", "z|",
                   "(?:a|ab)(?:c|bcd)(d*)", "(ab|a)(bc|c)*?", "(x?y?)*z"]),
    "f": ("text", ["", "i", "g", "n", "gi", "x", "s", "q", "z", "m", "w", "p", "c"]),
    "y": ("bytea", ["\\x", "\\x00", "\\xff00aa", "\\x616263", "\\x5c61", "\\x00112233445566778899aabbccddeeff", "\\x20616220"]),
    "c": ("text", ["", "Q", "hex", "base64", "escape", "HEX", "%s", "%I and %L", "%2$s-%1$s", "%-8s|%5s", "%*s", "%3$s", "%",
                   "%0$s", "%q", "Zm9v", "Zm9vYg==", "Zm9=", "Z$", "\\\\x", "select", "two words", "Äpfel", "a\u0308",
                   "\\0041\\u0042", "\\004", "61 62", "616", "x%%y%s", "%1$*2$s", "%-*s", "\u00e4", "ﬁ"]),
    "iv": ("interval", ["0", "1 day", "-1 day", "1 month", "1 year 2 mons 3 days 04:05:06.789", "-13 months", "30 days", "24:00:00",
                        "-00:00:01.5", "1 mon -1 day", "100 years", "infinity", "-infinity", "36:00", "-5 days 03:00", "90 minutes",
                        "178000000 years", "0.000001 sec", "59 days 23:59:59.999999", "-1 year -2 mons +40 days"]),
    "iw": ("interval", ["0", "1 hour", "-3 days", "1 mon", "1 day 12:00", "15 min", "7 days", "-2 years", "infinity", "5:30"]),
    "da": ("date", ["2024-02-29", "1970-01-01", "2000-01-31", "0001-01-01", "0044-03-15 BC", "9999-12-31", "infinity",
                    "-infinity", "2023-12-31", "2021-07-04", "12000-06-01"]),
    "ts": ("timestamp", ["2024-02-29 12:34:56.789", "1970-01-01", "1969-12-31 23:59:59.999999", "2021-03-14 02:30:00",
                         "2021-11-07 01:30:00", "infinity", "-infinity", "2001-09-09 01:46:40", "0044-03-15 12:00:00 BC",
                         "2024-03-31 02:30:00", "1900-01-01 00:00:00", "2050-07-01 18:00:00"]),
    "tt": ("timestamp", ["2024-01-31", "2000-02-29 23:00:00", "1999-12-31 00:00:00.000001", "2024-02-29 12:34:56.789", "infinity",
                         "1970-01-01 00:00:01"]),
    "tz": ("timestamptz", ["2024-02-29 12:34:56.789+00", "2021-03-14 10:30:00+00", "2021-11-07 05:30:00+00",
                           "2021-11-07 06:30:00+00", "infinity", "-infinity", "1883-11-18 17:00:00+00", "2050-01-01 00:00:00+00"]),
    "tm": ("time", ["00:00:00", "23:59:59.999999", "12:34:56.7", "24:00:00", "01:02:03"]),
    "zo": ("text", ["America/New_York", "UTC", "europe/paris", "Asia/Kolkata", "PST", "est", "Nowhere/Land", "Australia/Lord_Howe"]),
    "u": ("text", ["year", "month", "day", "hour", "minute", "second", "milliseconds", "microseconds", "epoch", "decade",
                   "century", "millennium", "quarter", "week", "dow", "bogus", "timezone"]),
    "q": ("text", ["1 day", "1 year 2 months 3 days 4 hours 5 minutes 6 seconds", "1.5 years", "2.25 mons", "1.5 weeks", "3.7 days", "1-2",
                   "1 2:03:04", "-1 2:03", "P1Y2M3DT4H5M6.5S", "P0001-02-03T04:05:06", "@ 1 minute ago", "1 day 2 days", "x", "",
                   "5", "1:02.5", "1d2h3m", "infinity", "99999999999 years", "1 foo", "12:99", "- 1 day", "1.23456789 secs", "PT36H"]),
    **type_cases.COLUMNS,
}  # fmt: skip


def _intervals() -> Iterator[str]:
    yield from ("r.iv + r.iw", "r.iv - r.iw", "- r.iv", "r.iv * r.k", "r.iv * r.e", "r.e * r.iv", "r.iv / r.e", "r.iw / 3",
                      "r.iv * 1.5", "r.ts - r.tt", "r.tz - r.tz", "r.tz - r.ts", "r.ts + r.iv", "r.ts - r.iw", "r.iv + r.tz",
                      "r.da + r.iw", "r.da - r.iv", "r.tm - r.tm", "r.tm + r.iw", "r.iv + r.tm", "r.tm - r.iv", "r.da + r.tm",
                      "r.tm + r.da", "age(r.ts, r.tt)", "age(r.tt, r.ts)", "age(r.tz, r.ts)", "age(r.da, r.tt)",
                      "justify_hours(r.iv)", "justify_days(r.iv)", "justify_interval(r.iv)", "justify_interval(r.iw - r.iv)",
                      "isfinite(r.iv)", "isfinite(r.ts)", "isfinite(r.da)", "isfinite(r.tz)", "extract(epoch from r.iv)",
                      "extract(epoch from r.ts - r.tt)", "date_bin(r.iw, r.ts, r.tt)", "date_bin('15 minutes', r.tz, r.tz)",
                      "date_bin(interval '1 hour 7 min', r.ts, timestamp '2001-01-01')", "r.q::interval", "r.iv::text", "r.iv || '!'",
                      "r.tm::interval", "r.iv::time", "cast(r.iv as interval day to minute)", "r.iv::interval year to month",
                      "interval '1-2' year to month + r.iv", "interval '5' minute * r.k", "interval '1 2:03:04' day to hour + r.iw",
                      "interval '2:03' minute to second + r.iw", "make_interval(r.k, r.k, 1, r.k, 5, 6, r.e)", "make_interval(1)",
                      "make_time(r.k, r.k * 7, r.e)", "make_timestamp(2000 + r.k, r.k, 28, r.k, 59, r.e)",
                      "make_timestamptz(r.k, 2, 29, 3, 4, 5.5)", "make_timestamptz(2021, 3, 14, 2, 30, 0, r.zo)", "to_timestamp(r.d)",
                      "to_timestamp(r.e)", "r.ts at time zone r.zo", "r.tz at time zone r.zo", "r.ts at time zone 'America/New_York'",
                      "r.tz at time zone interval '-05:30'", "r.ts at time zone r.iw", "timezone('PST', r.tz)",
                      "(r.ts, r.tt) overlaps (r.tt, r.ts)", "(r.ts, r.iw) overlaps (r.tt, interval '1 year')",
                      "(r.da, r.da + 3) overlaps (date '2024-01-01', date '2024-12-31')", "(r.tm, r.tm) overlaps (time '01:00', r.tm)",
                      "date_part('hour', r.tz at time zone 'Asia/Kolkata')")  # fmt: skip
    for sign in ("=", "<>", "<", "<=", ">", ">="):
        yield from (f"r.iv {sign} r.iw", f"r.iv {sign} '1 mon'")
    yield from (
        "greatest(r.iv, r.iw)",
        "least(r.iv, r.iw, '1 day')",
        "r.iv in (r.iw, interval '24 hours')",
        "nullif(r.iv, r.iw)",
        "r.iv is distinct from r.iw",
        "coalesce(r.iv, '0')",
        "case when r.k > 0 then r.iv else r.iw end",
        "r.iv between r.iw and '2 mons'",
        "r.ts - r.tt > '1 day'",
    )
    yield from ("extract(year from r.iv)", "date_part(r.u, r.iv)", "date_trunc(r.u, r.iv)", "extract(second from r.iv)",
                "extract(quarter from r.iv)", "extract(milliseconds from r.iv)")  # fmt: skip


def _zones() -> Iterator[str]:
    for zone in ("+02", "-02:30", "2", "UTC+3", "utc-3:15:20", "<+03>-3", "GMT+5", "Etc/GMT+5", "foo+167", "foo+168",
                 "X+5:60", "+2:5", "", "+", "+02x"):  # fmt: skip
        yield from (f"r.ts at time zone '{zone}'", f"r.tz at time zone '{zone}'")
    # Before railways had a time the editions of the time zone database differ.
    yield from (f"case when r.{c} > '1900-01-02' then r.{c} at time zone 'EST5EDT' end" for c in ("ts", "tz"))
    for zone in ("'America/New_York'", "'Asia/Kolkata'", "'Australia/Lord_Howe'", "'+02'", "r.zo"):
        yield from (
            f"date_trunc(r.u, r.tz, {zone})",
            f"date_trunc('hour', r.tz, {zone})",
            f"date_trunc('day', r.tz, {zone})",
        )
    yield from ("r.ts at local", "r.tz at local at time zone 'PST'", "extract(hour from r.tz at local)")
    for named in (
        "days => 10",
        "hours => r.k, secs => 1.5",
        "1, r.k, days => 3",
        "days := r.k",
        "weeks => 3, years => r.k",
    ):
        yield f"make_interval({named})"


_PARTS = (
    "get_byte(r.y, r.k)",
    "set_byte(r.y, r.k, 300)",
    "get_bit(r.y, r.k)",
    "set_bit(r.y, r.k, 1)",
    "set_bit(r.y, 1, r.k)",
    "substring(r.y from 2)",
    "substr(r.y, r.k, 2)",
    "position(decode('00', 'hex') in r.y)",
    "btrim(r.y, decode('2061', 'hex'))",
    "ltrim(r.y, r.y)",
    "rtrim(r.y, decode('aa', 'hex'))",
    "overlay(r.y placing decode('ffff', 'hex') from r.k for 1)",
    "overlay(r.x placing 'ZZ' from r.k)",
    "overlay(r.x placing r.c from 2 for r.k)",
    "r.x ^@ 'ab'",
    "r.x ^@ r.c",
    "to_bin(r.i)",
    "to_oct(r.b)",
    "to_hex(r.i)",
    "num_nulls(r.x, r.c, r.i)",
    "num_nonnulls(r.x, null, 3)",
    "left(r.x, r.k)",
    "right(r.x, r.k)",
    "split_part(r.x, ',', r.k)",
    "split_part(r.x, 'b', r.k)",
    "translate(r.x, 'abc', 'X')",
    "position('b' in r.x)",
)
"""Parts of bytes and texts."""

_CONSTANTS = (
    "E'a\\tb\\x41\\101\\u00e4\\\\ \\'q'",
    "U&'d\\0061t\\+01F600'",
    "U&'d!0061t' uescape '!'",
    "'a'\n   'b'",
    "E'a\\n'\n'\\t'",
    "$$it's$$",
    "$q$a$$b$q$",
    "E'\\uD83D\\uDE00'",
    "'back\\slash'",
)
"""Spellings of string constants."""


def _texts() -> Iterator[str]:
    for name in (
        "quote_ident",
        "quote_literal",
        "quote_nullable",
        "normalize",
        "unistr",
        "bit_length",
        "md5",
        "initcap",
    ):
        yield from (f"{name}(r.c)", f"{name}(r.x)")
    for form in ("nfc", "nfd", "nfkc", "nfkd"):
        yield from (f"normalize(r.c, {form})", f"r.c is {form} normalized")
    yield from (
        "r.c is normalized",
        "r.c is not normalized",
        "quote_literal(r.i)",
        "quote_nullable(r.n)",
        "quote_nullable(r.i > 3)",
    )
    for args in ("", ", r.x", ", r.x, r.k", ", r.x, r.k, r.n", ", 8, r.x", ", null, true", ", r.k, r.x, -7"):
        yield f"format(r.c{args})"
    yield from ("format('[%s|%10s|%-10s|%I|%L]', r.x, r.c, r.k, r.c, r.x)", "format('%s %s', r.y, r.d)")
    for name in ("encode", "decode"):
        for form in ("hex", "base64", "escape"):
            yield f"{name}({'r.y' if name == 'encode' else 'r.c'}, '{form}')"
    yield from ("encode(r.y || r.y || r.y || r.y || r.y || r.y, 'base64')", "encode(r.y, r.c)", "decode(r.x, r.c)")
    for name in (
        "sha224",
        "sha256",
        "sha384",
        "sha512",
        "crc32",
        "bit_count",
        "bit_length",
        "reverse",
        "md5",
        "length",
    ):
        yield f"{name}(r.y)"
    yield from _PARTS
    yield from (f"{constant} || r.x" for constant in _CONSTANTS)


_SEARCHES = (
    "regexp_count(r.x, r.p)",
    "regexp_count(r.x, r.p, r.k)",
    "regexp_count(r.x, r.p, 2, r.f)",
    "regexp_instr(r.x, r.p)",
    "regexp_instr(r.x, r.p, r.k, 2)",
    "regexp_instr(r.x, r.p, 1, 1, r.k, 'i', 1)",
    "regexp_substr(r.x, r.p)",
    "regexp_substr(r.x, r.p, r.k)",
    "regexp_substr(r.x, r.p, 1, r.k)",
    "regexp_substr(r.x, r.p, 1, 1, '', r.k)",
    "regexp_instr(r.x, r.p, 1, 2, 0, r.f, 2)",
    "substring(r.x from r.p)",
    "substring(r.x, r.p)",
    "substring(r.x from '%#\"b%#\"_' for '#')",
    "r.x similar to '%(b|c)_' escape '#'",
    "r.x similar to '[a-c]+' escape ''",
    "r.x not similar to 'a#%%' escape '#'",
    "substring(r.x similar '_#\"%#\"_' escape '#')",
    "r.x::char(8) ~ r.p",
    "r.x like '%#%' escape '#'",
    "r.x not ilike 'A#_%' escape '#'",
    "substring(r.x for 2)",
    "substring(r.x for 2 from 2)",
    "substring(r.x, 2, 1)",
    "r.x::varchar(3) ~ r.p",
)
"""Searches of each kind."""

_PATTERNS = (
    "(.*?)(b+)(.*)",
    "^(a|b)*?(c+)$",
    "(a+?)(a*)",
    "((a)|(ab))(c|(bcd))*",
    "(?n)^b.*$",
    "(?w)r$",
    "\\Abar|baz\\Z",
    "[[:alpha:]_]+",
    "[^[:space:]]+$",
    "\\y[a-z]{3}\\y",
    "(?x) a  b # c\n c",
    "(?q)a.b",
    "***=a.b",
    "a{0}b",
    "(a?)*b",
    "(a{1,3}){2}",
    "((a|b)+c)+",
    "[]a]+",
    "[^]a]+",
    "[a\\]]",
    "\\x41",
    "\\u0061b",
    "a(?=b)(.)",
    "a(?!b)(.)",
    "(?<=a)b+",
    "[[:<:]]b",
    "a|b|",
    "x{,2}",
    "a{256}",
    "a{2,1}",
    "[[:foo:]]",
    "a\\",
    "a)",
    "(?:(a)|b)*",
    "(a|b){2,3}?(.*)",
    "\\W+",
    "[\\w.]+",
    "[a-]+",
    "(^|,)([^,]*)",
    "^*",
    "(*)",
    "((a+)+)+$",
)
"""Patterns whose match depends on what Postgres prefers."""


def _regexes() -> Iterator[str]:
    for op in ("~", "~*", "!~", "!~*", "similar to", "not similar to"):
        yield f"r.x {op} r.p"
    for args in ("r.x, r.p", "r.x, r.p, r.f"):
        for name in ("match", "like", "split_to_array"):
            yield f"regexp_{name}({args})"
    for new in ("'<\\&>'", "'\\2-\\1'", "'\\\\x\\y'"):
        yield from (
            f"regexp_replace(r.x, r.p, {new})",
            f"regexp_replace(r.x, r.p, {new}, 'g')",
            f"regexp_replace(r.x, r.p, {new}, r.f)",
            f"regexp_replace(r.x, r.p, {new}, r.k)",
            f"regexp_replace(r.x, r.p, {new}, 2, r.k)",
            f"regexp_replace(r.x, r.p, {new}, 1, 2, 'i')",
        )
    yield from _SEARCHES
    for pattern in _PATTERNS:
        quoted = pattern.replace("'", "''")
        yield from (f"regexp_match(r.x, '{quoted}')", f"regexp_replace(r.x, '{quoted}', '[\\1|\\2]', 'gi')")


def _math() -> Iterator[str]:
    for name in ("sqrt", "cbrt", "exp", "ln", "log", "log10", "sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh",
                 "cosh", "tanh", "asinh", "acosh", "atanh", "sind", "cosd", "tand", "cotd", "asind", "acosd", "atand",
                 "degrees", "radians", "sign", "ceil", "floor", "round", "trunc", "erf", "erfc"):  # fmt: skip
        yield f"{name}(r.d)"
        yield f"{name}(r.e)"
    for name in ("atan2", "atan2d", "power"):
        yield f"{name}(r.d, r.e)"
    yield from (
        "|/ r.d",
        "||/ r.e",
        "r.d ^ r.e",
        "r.i ^ 2",
        "2 ^ r.k",
        "2.0 ^ r.k",
        "pi() + r.d",
        "@ r.d",
        "|/ r.i",
        "@ r.k - 3",
        "|/ 4 * r.e ^ 2",
        "2 * @ r.k",
        "~ r.i + 1",
    )
    for name in ("sqrt", "exp", "ln", "log", "log10", "sign", "scale", "min_scale", "trim_scale", "abs", "ceil"):
        yield f"{name}(r.n)"
        yield f"{name}(r.m)"
        yield f"{name}(r.s)"
    yield from (
        *("power(r.n, r.m)", "power(r.s, r.m)", "r.n ^ r.k", "log(r.n, r.m)", "log(r.m, r.n)", "div(r.n, r.m)"),
        *("mod(r.n, r.m)", "gcd(r.n, r.m)", "lcm(r.n, r.m)", "log(2, r.s)", "div(r.s, r.k)", "power(r.m, r.k)"),
        *("gcd(r.i, r.k)", "lcm(r.i, r.k)", "gcd(r.b, r.i)", "lcm(r.b, r.k)", "mod(r.b, r.k)", "div(r.i, r.k)"),
        *("factorial(r.k)", "factorial(r.i % 300)", "round(r.n, r.k)", "trunc(r.n, r.k)", "round(r.s, 1)"),
    )
    for low, high in (("0", "10"), ("10", "0"), ("-5.5", "100.25"), ("1", "1")):
        for value in ("n", "m", "s"):
            yield f"width_bucket(r.{value}, {low}, {high}, 7)"
        yield f"width_bucket(r.d, {low}::float8, {high}::float8, 5)"
    for operator in ("&", "|", "#", "<<", ">>"):
        yield from (f"r.i {operator} r.k", f"r.b {operator} r.k", f"r.i::smallint {operator} r.k::smallint % 40")
    yield from ("~ r.b", "r.i & r.b # 7", "r.k | 1 + 2", "1 << r.k")
    yield "width_bucket(r.d, r.e, 10, r.k)"
    yield "width_bucket(r.n, r.m, 10, r.k)"
    yield "width_bucket(r.i, array[0, 5, 10, 20])"
    yield "width_bucket(r.n, array[0, 5.5, 10, 20])"
    yield "width_bucket(r.d, array[0, 5.5, 10, 20]::float8[])"


FAMILIES = {
    "math": tuple(_math()),
    "intervals": tuple(_intervals()),
    "zones": tuple(_zones()),
    "texts": tuple(_texts()),
    "regexes": tuple(_regexes()),
    "written numbers": tuple(template_cases.numbers()),
    "written dates": tuple(template_cases.dates()),
    "read": tuple(reading_cases.readings()),
    "spelled": tuple(reading_cases.spellings()),
    "bits": tuple(type_cases.bits()),
    "zoned times": tuple(type_cases.zoned_times()),
    "precisions": tuple(type_cases.precisions()),
    "rows": tuple(type_cases.rows()),
    "arrays": tuple(type_cases.arrays()),
    "made arrays": tuple(making_cases.arrays()),
    "codings": tuple(making_cases.codings()),
    "identifiers": tuple(making_cases.identifiers()),
    "lax": tuple(making_cases.lax()),
}
