"""Expressions of `test_functions`: arrays filled, sorted and turned, encodings, identifiers, UUIDs, and jsonb_set_lax."""

from __future__ import annotations

from collections.abc import Iterator

_NAMES = (
    "a.b", '"SomeSchema".someTable', " A . b ", "foo.boo[]", "x.", ".x", "1a", "a$1", "", " ", '""', '"a', '"a""b".c', "a b",
    "schema.\u00dcber", "a.\"b\"c", "f(x)", "a..b", "_x.y1\t", '"a". "b" .c',
)  # fmt: skip
_UUIDS = (
    "41db1265-8bc1-4ab3-992f-885799a4af1d", "C232AB00-9414-11EC-B3C8-9F6BDECED846", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
    "00000000-0000-0000-0000-000000000000", "11111111-1111-1111-1111-111111111111", "2ed6657d-e927-568b-95e1-2665a8aea6a2",
    "ffffffff-ffff-1fff-bfff-ffffffffffff", "ffffffff-ffff-7fff-bfff-ffffffffffff", "00000000-0000-1000-8000-000000000000",
)  # fmt: skip


def of_rows(value: str) -> str:
    """A value that is no constant to the planner."""
    return f"case when r.k > -9 then {value} end"


def arrays() -> Iterator[str]:
    """array_fill, array_sort, array_reverse."""
    yield from (
        f"array_fill({value}, array[2, 3])" for value in ("r.k", "r.x", "r.n", "null::int", "r.iv", "B'101'", "r.ts")
    )
    for shape in ("array[r.k]", "array[r.k, 2]", "null", "array[[1, 2]]", "array[null, 1]", "'{}'", "array[1, 0]", "array[0, -1]",
                  "array[1, 1, 1, 1, 1, 1, 1]", "array[100000, 100000]"):  # fmt: skip
        yield f"array_fill(r.b, {shape}::int[])"
    for shape in ("array[2], array[r.k]", "array[2, r.k], array[r.i, 0]", "array[2], null", "array[2], '{}'", "'{}', array[1]",
                  "array[2], array[[1]]", "array[1], array[null::int]", "'{}', '{}'", "array[1], array[2147483647]"):  # fmt: skip
        yield f"array_fill(r.x, {shape})"
    yield from ("array_fill(1.50, array[2])", "array_fill(r.b, array[1, 1])")
    for value in ("r.na", "r.nb", "r.nc", "r.ia", "array[r.k, r.i, null, 3]", "array[[r.k, 2], [r.i, 1], [0, null]]",
                  "array[r.x, 'b', r.c]", "array[r.d, r.e, 0.5]", "array[r.ts, r.tt]", "'[3:5]={c,a,b}'::text[]",
                  "'{}'::int[]", "'{{3},{1},{2}}'::int[]", "'[0:1][5:6]={{2,1},{1,2}}'::int[]"):  # fmt: skip
        yield f"array_reverse({value})"
        for flags in ("", ", true", ", false, true", ", true, false", ", r.k > 0, r.i > 0"):
            yield f"array_sort({value}{flags})"
    yield from (
        "array[[[[[[[r.k]]]]]]]",
        "array_position(r.na, null, null)",
        "array_position(array[r.x], null, null::int)",
    )
    yield from ("array_sort(array[to_json(r.x), '[]'])", "array_sort(array['2', '1']::jsonb[])",
                "array_reverse(array['[]'::json, '{}'])")  # fmt: skip


def codings() -> Iterator[str]:
    """convert, convert_from, convert_to."""
    for name in (
        "UTF8",
        "latin1",
        "ISO-8859-15",
        "win1252",
        "KOI8R",
        "Windows-1251",
        "nowhere",
        "WIN866",
        "ISO_8859_5",
    ):
        coding = of_rows(f"'{name}'")
        yield from (f"convert_to(r.x, {coding})", f"convert_to(r.c, {coding})", f"convert_from('\\x616263e4', {coding})",
                    f"convert('\\x61c3a4', 'UTF8', {coding})", f"convert('\\xe461', {coding}, 'UTF8')",
                    f"convert_to('\u20ac', {coding})", f"convert('\\x61', {coding}, 'nope')")  # fmt: skip
    yield from ("convert_from(r.y, 'UTF8')", "convert_from(r.y, 'LATIN1')", "convert(r.y, 'UTF8', 'UTF8')",
                "convert_from(r.y, r.c)", "convert(r.y, 'latin1', 'nope')",
                "convert_from(convert_to(r.x, 'LATIN9'), 'LATIN9')")  # fmt: skip
    for raw in ("e282", "e282ac41ff", "f0", "c0af", "61ed", "eda080", "f8aa", "80", "c3", "6100", "61ff00"):
        value = of_rows(f"'\\x{raw}'::bytea")
        yield f"convert_from({value}, 'utf-8')"


def identifiers() -> Iterator[str]:
    """parse_ident, and the version and the time of a UUID."""
    yield from ("parse_ident(r.x)", "parse_ident(r.x, false)", "parse_ident(r.c, r.k > 0)")
    for name in _NAMES:
        yield from (f"parse_ident('{name}')", f"parse_ident('{name}', false)")
    for spelled in _UUIDS:
        yield from (f"uuid_extract_version('{spelled}'::uuid)", f"uuid_extract_timestamp('{spelled}'::uuid)")


def lax() -> Iterator[str]:
    """jsonb_set_lax."""
    for target in ('{"a": 1, "b": [1, 2]}', "[1, 2]", "{}"):
        for path in ("{a}", "{b,0}", "{b,5}", "{z}", "{}"):
            for new in ("null", "'\"x\"'"):
                call = f"jsonb_set_lax('{target}', '{path}', {new}"
                yield from (f"{call})", f"{call}, false)", f"{call}, true, 'delete_key')", f"{call}, true, 'return_target')",
                            f"{call}, r.k > 0, 'raise_exception')", f"{call}, r.k > 0, 'other')", f"{call}, true, null)",
                            f"{call}, null)")  # fmt: skip
    yield from (
        "jsonb_set_lax(null, '{a}', '1')",
        "jsonb_set_lax('{}', null, '1')",
        "jsonb_set_lax('{}', '{a}', to_jsonb(r.x))",
        "jsonb_set_lax('1', '{a}', null)",
    )
    for value in ("r.na", "r.nb", "array[r.x, r.c]", "array[[r.k, 1], [2, r.i]]", "array[to_json(r.x), '{\"a\": 1}']"):
        yield from (f"array_to_json({value}, true)", f"array_to_json({value}, r.k > 0)")
    for value in ('\'[null, 1, {"a": null, "b": [null, [null, "x"]]}]\'', "'null'", "to_json(array[r.x, null])"):
        for kind in ("json", "jsonb"):
            cast = f"({value})::{kind}"
            yield from (
                f"{kind}_strip_nulls({cast})",
                f"{kind}_strip_nulls({cast}, true)",
                f"{kind}_strip_nulls({cast}, r.k > 0)",
            )
