"""Regular expressions: the operators ~ and SIMILAR TO, the regexp_ functions, and SUBSTRING by a pattern.

Always: a pattern is read once; a match is Postgres's (leftmost, then by the pattern's preference), and a value on which
one takes too many steps fails its row by name. Evaluated once per distinct value, but for questions whether there is a match,
which RE2 answers where it means the same (`regex_re2`). Registered in the catalogue at import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.array.array_text import spell
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.core.sets import each
from headrace.engine.operators.expressions.regex.regex_match import Matcher, Spans
from headrace.engine.operators.expressions.regex.regex_re2 import translated
from headrace.engine.operators.expressions.regex.regex_states import Text
from headrace.engine.operators.expressions.regex.regex_syntax import Options, Reader, options_of
from headrace.engine.schema import DataType, Kind

STRING = pa.large_string()
T, N, B = Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN


@functools.lru_cache(maxsize=512)
def matcher(pattern: str, options: Options) -> Matcher:
    """The pattern ready to match. Raises RowError with Postgres's message."""
    reader = Reader(pattern, options)
    try:
        tree = reader.read()
        return Matcher(tree, reader.captures, reader.options.lines)
    except RecursionError:
        raise RowError("invalid regular expression: regular expression is too complex") from None


def _found(text: str, pattern: str, options: Options = Options()) -> bool:  # noqa: B008
    return matcher(pattern, options).found(Text(text))


def _operator(folded: bool, negated: bool) -> Maker:
    options = Options(folded=folded)
    return _asked(
        lambda text, pattern: _found(text, pattern, options) is not negated, lambda pattern: (pattern, options), negated
    )


def _asked(slow: Callable[..., bool], read: Callable[..., tuple[str, Options]], negated: bool) -> Maker:
    """Whether there is a match: of a whole column at once where RE2 means the same by a constant pattern.

    `read`: the expression and its options, of the constants behind the text.
    """

    def make(_params: tuple[DataType, ...], _result: DataType) -> Kernel:
        def kernel(text: Values, *constants: Values) -> Outcome:
            told = [c.as_py() for c in constants if isinstance(c, pa.Scalar)]
            if len(told) == len(constants) and None not in told:
                found = _in_columns(read, told)
                if found is not None:
                    matched = pc.match_substring_regex(text, found)
                    return (pc.invert(matched) if negated else matched), None
            return fallback.map_values(slow, pa.bool_(), [text, *constants])

        return kernel

    return make


def _in_columns(read: Callable[..., tuple[str, Options]], told: list[str]) -> str | None:
    """The expression for RE2; None where it is ours to match, or to refuse."""
    try:
        pattern, options = read(*told)
        matcher(pattern, options)
    except RowError:
        return None
    return translated(pattern, options)


def _options(flags: str, function: str, *, everywhere: bool = False) -> Options:
    options = options_of(flags)
    if options.everywhere and not everywhere:
        raise RowError(f'{function}() does not support the "global" option')
    return options


def _matches(text: str, pattern: str, options: Options, start: int = 0, *, splits: bool = False) -> Iterator[Spans]:
    """Each match after the one before; `splits`: not the empty ones at either end and right after another."""
    compiled, subject, last = matcher(pattern, options), Text(text), 0
    while start <= len(text) and (spans := compiled.search(subject, start)) is not None:
        assert spans[0] is not None
        begin, end = spans[0]
        if not splits or (begin < len(text) and end > last):
            yield spans
        last = end
        start = end + (begin == end)


def _cut(text: str, span: tuple[int, int] | None) -> str | None:
    return None if span is None else text[span[0] : span[1]]


def _groups(text: str, spans: Spans) -> list[str | None]:
    return [_cut(text, s) for s in (spans[1:] or spans)]


def _match(text: str, pattern: str, flags: str = "") -> str | None:
    spans = next(_matches(text, pattern, _options(flags, "regexp_match")), None)
    return None if spans is None else spell(_groups(text, spans))


def _all_matches(text: str | None, pattern: str | None, flags: str | None = "") -> list[str]:
    if text is None or pattern is None or flags is None:
        return []
    options = _options(flags, "regexp_matches", everywhere=True)
    found = []
    for spans in _matches(text, pattern, options):
        found.append(spell(_groups(text, spans)))
        if not options.everywhere:
            break
    return found


def _like(text: str, pattern: str, flags: str = "") -> bool:
    return _found(text, pattern, _options(flags, "regexp_like"))


def _positive(name: str, value: int, least: int = 1) -> None:
    if value < least:
        raise RowError(f'invalid value for parameter "{name}": {value}')


def _count(text: str, pattern: str, start: int = 1, flags: str = "") -> int:
    _positive("start", start)
    return sum(1 for _ in _matches(text, pattern, _options(flags, "regexp_count"), start - 1))


def _nth(name: str, text: str, pattern: str, start: int, number: int, flags: str, group: int) -> tuple[int, int] | None:
    options = _options(flags, name)
    _positive("subexpr", group, 0)
    for i, spans in enumerate(_matches(text, pattern, options, start - 1), 1):
        if i == number:
            # Without parentheses the whole match is the first of them.
            groups = [spans[0], *(spans[1:] or spans)]
            return groups[group] if group < len(groups) else None
    return None


def _instr(
    text: str, pattern: str, start: int = 1, number: int = 1, ends: int = 0, flags: str = "", group: int = 0
) -> int:
    _positive("start", start)
    _positive("n", number)
    if ends not in (0, 1):
        raise RowError(f'invalid value for parameter "endoption": {ends}')
    span = _nth("regexp_instr", text, pattern, start, number, flags, group)
    return 0 if span is None else span[ends] + 1


def _substr(text: str, pattern: str, start: int = 1, number: int = 1, flags: str = "", group: int = 0) -> str | None:
    _positive("start", start)
    _positive("n", number)
    return _cut(text, _nth("regexp_substr", text, pattern, start, number, flags, group))


def _substring(text: str, pattern: str) -> str | None:
    spans = next(_matches(text, pattern, Options()), None)
    return None if spans is None else _cut(text, spans[1] if len(spans) > 1 else spans[0])


def _replaced(text: str, pattern: str, new: str, options: Options, start: int, number: int) -> str:
    """`number` 0: all of them."""
    out, copied = [], 0
    for i, spans in enumerate(_matches(text, pattern, options, start - 1), 1):
        assert spans[0] is not None
        if number and i != number:
            continue
        out += [text[copied : spans[0][0]], _substituted(new, text, spans)]
        copied = spans[0][1]
        if number:
            break
    return "".join((*out, text[copied:]))


def _substituted(new: str, text: str, spans: Spans) -> str:
    out, at = [], 0
    while at < len(new):
        after = new[at + 1 : at + 2]
        if new[at] == "\\" and after and after in "123456789&\\":
            place = 0 if after == "&" else ord(after) - ord("0")
            out.append("\\" if after == "\\" else (_cut(text, spans[place]) or "") if place < len(spans) else "")
            at += 2
        else:
            out.append(new[at])
            at += 1
    return "".join(out)


def _replace_flagged(text: str, pattern: str, new: str, flags: str = "") -> str:
    if flags[:1].isdigit():
        raise RowError(f'invalid regular expression option: "{flags[0]}"')
    options = options_of(flags)
    return _replaced(text, pattern, new, options, 1, 0 if options.everywhere else 1)


def _replace_nth(text: str, pattern: str, new: str, start: int, number: int | None = None, flags: str = "") -> str:
    _positive("start", start)
    if number is not None:
        _positive("n", number, 0)
    options = options_of(flags)
    return _replaced(text, pattern, new, options, start, 1 if number is None else number)


def _parts(text: str, pattern: str, flags: str, name: str) -> list[str]:
    out, last = [], 0
    for spans in _matches(text, pattern, _options(flags, name), splits=True):
        assert spans[0] is not None
        out.append(text[last : spans[0][0]])
        last = spans[0][1]
    return [*out, text[last:]]


def _split_to_array(text: str, pattern: str, flags: str = "") -> str:
    return spell([*_parts(text, pattern, flags, "regexp_split_to_array")])


def _split_to_table(text: str | None, pattern: str | None, flags: str | None = "") -> list[str]:
    if text is None or pattern is None or flags is None:
        return []
    return _parts(text, pattern, flags, "regexp_split_to_table")


@functools.lru_cache(maxsize=512)
def similar(pattern: str, escape: str = "\\") -> str:
    """SQL's pattern (of SIMILAR TO) as the regular expression that Postgres makes of it.

    >>> similar("a%(b|_)")
    '^(?:a.*(?:b|.))$'
    """
    if len(escape) > 1:
        raise RowError("invalid escape string")
    out, escaped, inside, begun, quotes = ["^(?:"], False, False, 0, 0
    for char in pattern:
        if escaped:
            escaped = False
            if char == '"' and not inside:
                if quotes > 1:
                    raise RowError(
                        "SQL regular expression may not contain more than two escape-double-quote separators"
                    )
                out.append("){1,1}?(" if quotes == 0 else "){1,1}(?:")
                quotes += 1
            else:
                out.append("\\" + char)
                begun += 1
        elif char == escape:
            escaped = True
        elif inside:
            out.append("\\\\" if char == "\\" else char)
            inside = char != "]" or begun == 0
            begun += char != "^" or begun > 0
        elif char == "[":
            out.append(char)
            inside, begun = True, 0
        else:
            out.append({"%": ".*", "_": ".", "(": "(?:"}.get(char) or ("\\" + char if char in "\\.^$" else char))
    return "".join((*out, ")$"))


def _similar(negated: bool) -> Maker:
    return _asked(
        lambda text, pattern, escape="\\": _found(text, similar(pattern, escape)) is not negated,
        lambda pattern, escape="\\": (similar(pattern, escape), Options()),
        negated,
    )


def _per_value(function: Callable[..., Any], lane: pa.DataType) -> Maker:
    def make(_params: tuple[DataType, ...], _result: DataType) -> Kernel:
        def kernel(*values: Values) -> Any:
            return fallback.map_values(function, lane, values)

        return kernel

    return make


def _register() -> None:
    texts = DataType(Kind.OTHER, name="text[]")
    for kind in (T, Kind.BPCHAR):
        for name, folded, negated in (
            ("~", False, False),
            ("~*", True, False),
            ("!~", False, True),
            ("!~*", True, True),
        ):
            entry(name, (kind, T), B, _operator(folded, negated), fallback=True)
    for name, negated in (("similar to", False), ("not similar to", True)):
        for params in ((T, T), (T, T, T)):
            entry(name, params, B, _similar(negated), fallback=True)
    entry("substring", (T, T), T, _per_value(_substring, STRING), fallback=True)
    by_escape = _per_value(lambda text, pattern, escape: _substring(text, similar(pattern, escape)), STRING)
    entry("substring", (T, T, T), T, by_escape, fallback=True)
    replaces = _per_value(_replace_nth, STRING)
    for count in (3, 4):
        entry("regexp_replace", (T, T, T, T)[:count], T, _per_value(_replace_flagged, STRING), fallback=True)
    for count in range(4, 7):
        entry("regexp_replace", (T, T, T, N, N, T)[:count], T, replaces, fallback=True)
    likes = _asked(_like, lambda pattern, flags="": (pattern, _options(flags, "regexp_like")), negated=False)
    for params in ((T, T), (T, T, T)):
        entry("regexp_match", params, lambda _: texts, _per_value(_match, STRING), fallback=True)
        entry("regexp_like", params, B, likes, fallback=True)
        split = _per_value(_split_to_array, STRING)
        entry("regexp_split_to_array", params, lambda _: texts, split, fallback=True)
        name = "regexp_matches"
        entry(name, params, lambda _: texts, each(_all_matches), fallback=True, columns=((name, None),))
        name = "regexp_split_to_table"
        entry(name, params, T, each(_split_to_table), fallback=True, columns=((name, None),))
    for count in range(2, 5):
        entry("regexp_count", (T, T, N, T)[:count], N, _per_value(_count, pa.int32()), fallback=True)
    for count in range(2, 8):
        entry("regexp_instr", (T, T, N, N, N, T, N)[:count], N, _per_value(_instr, pa.int32()), fallback=True)
    for count in range(2, 7):
        entry("regexp_substr", (T, T, N, N, T, N)[:count], T, _per_value(_substr, STRING), fallback=True)


_register()
