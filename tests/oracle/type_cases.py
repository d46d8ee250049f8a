"""Columns and expressions of `test_functions`: bit strings, times with a zone, precisions of times, row values and arrays."""

from __future__ import annotations

from collections.abc import Iterator

COLUMNS: dict[str, tuple[str, list[str]]] = {
    "bv": ("bit varying", ["", "1", "0", "101", "0101", "11111111", "000000001", "10101010101010101010101010101010",
                           "1111111111111111111111111111111111111111111111111111111111111111", "0110"]),
    "bw": ("bit(8)", ["00000000", "11111111", "10101010", "00000001", "10000000", "01100110"]),
    "tw": ("timetz", ["00:00:00+00", "23:59:59.999999-08", "12:34:56.7+05:30", "24:00:00+02", "01:02:03-03:30:15",
    "12:00+02",
                      "10:00+00"]),
    "na": ("numeric[]", ["{}", "{1,2}", "{1.0,2.00}", "{NULL}", "{NaN,1}", "{1}", "[0:1]={1,2}", "{{1,2},{3,4}}",
    "{-1.5,NULL}"]),
    "nb": ("numeric[]", ["{1.00,2}", "[2:3][0:1]={{1,2},{3,4}}", "{}", "{NULL}", "{2}", "{1,NULL}", "{{1,2},{3,4.0}}",
                       "{1,1.50}"]),
    "nc": ("numeric[]", ["{1.00,2}", "{}", "{NULL}", "{2,1}", "{1,NULL,1.0}", "{NaN}", "{-1.5,1.50}"]),
    "ia": ("interval[]", ["{}", "{1 day,NULL}", "{24:00}", "{1 mon}", "{30 days,1 day}"]),
}  # fmt: skip
_ORDERS = ("=", "<>", "<", "<=", ">", ">=", "is distinct from")


def bits() -> Iterator[str]:
    """Operators, functions and casts of bit strings."""
    for sign in _ORDERS:
        yield from (f"r.bv {sign} r.bw", f"r.bv {sign} B'101'", f"r.bw {sign} '00000001'")
    for sign in ("&", "|", "#"):
        yield from (
            f"r.bw {sign} B'10101010'",
            f"r.bw {sign} r.bw",
            f"r.bv {sign} r.bw",
            f"B'0011' {sign} r.bw::bit(4)",
        )
    for value in ("r.bv", "r.bw"):
        yield from (f"~ {value}", f"{value} << r.k", f"{value} >> r.k", f"length({value})", f"bit_length({value})",
                    f"octet_length({value})", f"bit_count({value})", f"get_bit({value}, r.k)", f"set_bit({value}, r.k, 1)",
                    f"set_bit({value}, 1, r.k)", f"substring({value} from 2)", f"substring({value} from r.k for 3)",
                    f"overlay({value} placing B'11' from 2)", f"overlay({value} placing B'0' from r.k for 2)",
                    f"position(B'10' in {value})",
                    f"position(B'' in {value})", f"{value}::text", f"{value}::bit(4)", f"{value}::bit varying(3)",
                    f"{value}::bit", f"{value} || B'01'", f"r.bv || {value}",
                    f"to_json({value})", f"coalesce({value}, B'1')", f"{value} in (B'101', r.bw)", f"nullif({value}, r.bw)",
                    f"array[{value}]", f"substring({value}, 2, r.k)", f"case when r.k > 0 then {value} else r.bw end",
                    f"greatest({value}, r.bv)", f"cast({value} as varbit(2))",
                    f"{value} between B'0' and B'11'")  # fmt: skip
    for size in (1, 5, 8, 32, 40, 64, 70):
        yield from (f"r.i::bit({size})", f"r.b::bit({size})", f"r.k::bit({size})::text")
    yield from ("r.i::bit(32)::int", "r.b::bit(64)::bigint", "X'1fF' || r.bv", "b'' || r.bv", "'1010'::bit(6)",
                "'1010'::bit(2)",
                "'x1f'::varbit", "bit '101'", "bit 'x1F' || r.bw", "'101'::bit", "cast('' as bit)", "bit '' || r.bv",
                "r.bw & bit '10000001'", "(r.x || '')::varbit", "r.q::bit(3)", "'101'::bit varying(2)", "'abc'::varchar(2)",
                "'abc'::char(2)",
                "r.x::varchar(2)", "bit(3) '10'", "varbit '10' || B'1'", "r.bw::int", "r.bw::bigint",
                "case when r.k > 0 then r.x::varchar(3) else r.x::char(4) end")  # fmt: skip


def zoned_times() -> Iterator[str]:
    """Times with a zone: orders, arithmetic, casts, fields and zones."""
    for sign in _ORDERS:
        yield from (f"r.tw {sign} '12:00+02'", f"r.tw {sign} timetz '10:00+00'")
    yield from ("r.tw + r.iw", "r.iw + r.tw", "r.tw - r.iw", "r.tw + interval '25:00'", "r.tw::time", "r.tm::timetz",
                "r.tz::timetz",
                "r.tw::text", "r.da + r.tw", "r.tw + r.da", "r.tw at time zone '-05'", "r.tw at time zone interval '03:30'",
                "r.tw at time zone 'PST'", "r.tw at time zone r.iw", "greatest(r.tw, timetz '11:00+01')",
                "r.tw in ('12:00+02')",
                "'04:05:06.789-8'::timetz", "time with time zone '04:05 PST'", "to_json(r.tw)", "r.q::timetz",
                "r.tw::timetz(2)",
                "(r.tw, r.tw) is null", "timetz '2003-04-12 04:05:06 America/New_York'", "array[r.tw]",
                "coalesce(r.tw, '1:00')", "case when r.k > 0 then r.tw end")  # fmt: skip
    for unit in ("hour", "minute", "second", "milliseconds", "microseconds", "epoch", "timezone", "timezone_hour",
    "timezone_minute",
                 "day", "bogus"):  # fmt: skip
        yield from (f"extract({unit} from r.tw)", f"date_part('{unit}', r.tw)")


def precisions() -> Iterator[str]:
    """Casts to times of so many digits."""
    for digits in (0, 2, 5, 6, 9):
        for value, kind in (
            ("ts", "timestamp"),
            ("tz", "timestamptz"),
            ("tm", "time"),
            ("tw", "timetz"),
            ("iv", "interval"),
        ):
            yield f"r.{value}::{kind}({digits})"
    yield from ("r.tt::timestamp(0)", "cast(r.ts as timestamp(1) without time zone)",
                "cast(r.tz as timestamp(3) with time zone)",
                "'2001-01-01 00:00:00.55'::timestamp(1)", "r.da::timestamp(0)", "r.ts::timestamptz(0)",
                "'1.55 secs'::interval(1)",
                "timestamp(0) '1999-12-31 23:59:59.5'", "r.q::interval(0)", "r.tm::interval(1)",
                "r.iv::time(1)")  # fmt: skip


def rows() -> Iterator[str]:
    """Row values: comparisons, tests for NULL and fields."""
    for sign in ("=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"):
        yield from (f"row(r.i, r.x) {sign} row(r.k, 'abc')", f"(r.n, r.iv) {sign} (1.0, interval '24:00')",
                    f"row(r.k) {sign} row(1)", f"(r.k, r.x, r.da) {sign} (1, null, r.da)")  # fmt: skip
    for test in ("is null", "is not null"):
        yield from (f"row(r.i, r.x) {test}", f"(r.iv, null) {test}", f"not row(r.k, r.n) {test}", f"(r).k {test}")
    yield from ("(r.i, r.k) in ((1, 0), (7, 3), (null, 2))", "(r.i, r.k) not in ((1, 0), (null, 2))",
                "(row(r.i, r.x)).f2", "(r).x",
                "(r.bv, r.tw) = (B'101', '12:00+02')", "row(r.na, r.nb) < row(r.nb, r.na)")  # fmt: skip


def _shapes() -> Iterator[str]:
    """Arrays of any shape taken by place, cut and joined."""
    for value in ("r.na", "r.nb"):
        yield from (f"({value})[r.k]", f"({value})[r.k][2]", f"({value})[1][r.k]", f"({value})[0:1]", f"({value})[:2]",
                    f"({value})[r.k:]", f"({value})[1:r.k][0:1]", f"({value})[r.k][:]", f"({value})[:][r.k:2]",
                    f"({value})[0:1][-1:5]", f"({value})[1:2][1:1][1:1]", f"({value})[2:2][1]",
                    f"array_append({value}, 9)", f"array_prepend(9, {value})", f"array_lower({value}, 1)",
                    f"array_upper({value}, r.k)", f"array_dims({value})", f"array_position({value}, 2, r.k)",
                    f"array_positions({value}, 1.0)", f"array_remove({value}, 1.0)", f"array_replace({value}, 1, null)",
                    f"trim_array({value}, r.k)", f"{value}::int[]", f"{value}::text[]", f"array_cat({value}, r.nb)",
                    f"{value} || r.na", f"array[{value}, {value}]", f"array[{value}, r.nc]", f"{value} || 5",
                    f"cardinality({value})",
                    f"array_ndims({value})", f"array_to_json({value})")  # fmt: skip
    yield from (
        "array[[1, 2], [3, 4.5]]",
        "array[[r.k], [r.i]]",
        "(array[[1, 2], [r.k, 4]])[2][1]",
        "array[['a'], [r.x]]",
        "array[['1', '2'], ['3', null]]::int[]",
        "array[[1, 2], [3, 4]]::text[]",
        "array[[[r.k]]]",
        "array[array[1], array[r.k]]",
        "array[[1, 2], [3]]",
        "array[[r.k, 2]] || array[[3, 4]]",
        "array[1] || array[[r.k]]",
    )


def arrays() -> Iterator[str]:
    """Arrays compared and searched by their elements' equality."""
    for sign in _ORDERS:
        yield from (f"r.na {sign} r.nb", f"r.na {sign} '{{1.0,2}}'", f"r.ia {sign} '{{1 day,NULL}}'",
                    f"array[r.k] {sign} '{{1}}'",
                    f"array[r.x, r.c] {sign} array[r.c, r.x]", f"array[r.d] {sign} array[r.e]",
                    f"array[r.ts] {sign} array[r.tt]")  # fmt: skip
    yield from ("r.na @> r.nb", "r.na && r.nb", "r.na <@ r.nb", "array_position(r.nc, 1.00)",
                "array_positions(r.ia, '1 day')",
                "array_remove(r.ia, '24:00')", "array_replace(r.nc, 1.0, 9)", "greatest(r.na, r.nb)",
                "least(r.ia, '{1 day}')",
                "r.na in (r.nb, '{1}')", "nullif(r.na, r.nb)", "array[r.iv] = array[r.iw]",
                "r.na between '{}' and '{2}'", "case r.na when '{1.000,2}' then 'a' else 'b' end",
                "array_to_string(r.na, ',')",
                "r.nc || 1.50", "array_cat(r.nc, r.nc)", "to_jsonb(r.na)", "r.nc::int[]", "r.ia::text[]",
                "r.na::text")  # fmt: skip
    yield from _shapes()
