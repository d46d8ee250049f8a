"""The columns and the expressions of `test_functions`: what each function makes of ordinary, extreme and wrong values."""

from __future__ import annotations

from collections.abc import Iterator

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
}  # fmt: skip


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
    yield from (
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
    for constant in (
        "E'a\\tb\\x41\\101\\u00e4\\\\ \\'q'",
        "U&'d\\0061t\\+01F600'",
        "U&'d!0061t' uescape '!'",
        "'a'\n   'b'",
        "E'a\\n'\n'\\t'",
        "$$it's$$",
        "$q$a$$b$q$",
        "E'\\uD83D\\uDE00'",
        "'back\\slash'",
    ):
        yield f"{constant} || r.x"


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
    yield from (
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
    for pattern in (
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
    ):
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


FAMILIES = {"math": tuple(_math()), "texts": tuple(_texts()), "regexes": tuple(_regexes())}
