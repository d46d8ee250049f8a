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
}  # fmt: skip


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


FAMILIES = {"math": tuple(_math())}
