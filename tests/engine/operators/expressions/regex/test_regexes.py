"""Regular expressions: what a match costs is bounded, and what is not supported is named."""

from __future__ import annotations

import pytest

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.regex.regex_match import Matcher
from headrace.engine.operators.expressions.regex.regex_states import Text
from headrace.engine.operators.expressions.regex.regex_syntax import Options, Reader


def matcher(pattern: str) -> Matcher:
    reader = Reader(pattern, Options())
    return Matcher(reader.read(), reader.captures, reader.options.lines)


def test_nested_repetitions_cost_no_more_than_the_text_is_long() -> None:
    text = Text("a" * 2000 + "b", left=60_000)
    assert not matcher("(a+)+$").found(text)
    assert matcher("(a|aa)+?b").search(Text("a" * 30 + "b")) == [(0, 31), (28, 30)]


def test_what_takes_too_many_steps_fails_by_name() -> None:
    with pytest.raises(RowError, match="regular expression not supported: it takes more than"):
        matcher("(a+)+$").found(Text("a" * 2000 + "b", left=500))


REFERRING = [
    # pattern, text, spans of the match and of the parentheses: what Postgres answers
    (r"(ab|a)\1", "abaabb", [(2, 4), (2, 3)]),
    (r"(a*)b\1", "aaabaa", [(1, 6), (1, 3)]),
    (r"(a+?)(b\1)+", "aabaaba", [(0, 5), (0, 2), (2, 5)]),
    (r"(?:(a)|(b))\2", "aabb", [(2, 4), None, (2, 3)]),
    (r"((a|b)\2){2}", "aabb", [(0, 4), (2, 4), (2, 3)]),
    (r"^(.+)\1$", "abcab", None),
    (r"(x?)\1{2}y", "xxxy", [(0, 4), (0, 1)]),
    (r"()\1+", "a", [(0, 0), (0, 0)]),
]


@pytest.mark.parametrize(("pattern", "text", "spans"), REFERRING)
def test_back_references(pattern: str, text: str, spans: list[tuple[int, int] | None] | None) -> None:
    assert matcher(pattern).search(Text(text)) == spans
    assert matcher(pattern).found(Text(text)) is (spans is not None)


def test_back_references_fold_as_their_pattern_does() -> None:
    reader = Reader(r"(straße)-\1", Options(folded=True))
    assert Matcher(reader.read(), reader.captures, lines=False).found(Text("Straße-STRAßE"))
    assert not matcher(r"(a)\1").found(Text("aA"))


@pytest.mark.parametrize("pattern", [r"\1(a)", r"(a\1)", r"(a)(?=\1)", r"(?=(a))\1", r"(a)\2"])
def test_a_back_reference_to_nothing_is_invalid(pattern: str) -> None:
    with pytest.raises(RowError, match="invalid backreference number"):
        matcher(pattern)


def test_ways_tried_for_back_references_count_as_steps() -> None:
    with pytest.raises(RowError, match="it takes more than"):
        matcher(r"^(a*)(a*)(a*)b\1\1\2\2\3\3$").found(Text("a" * 30 + "b" + "a" * 61, left=20_000))


@pytest.mark.parametrize("pattern", ["(?b)a", "(?e)a"])
def test_other_flavours_are_refused_by_name(pattern: str) -> None:
    with pytest.raises(RowError, match="not supported"):
        matcher(pattern)
