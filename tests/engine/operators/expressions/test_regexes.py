"""Regular expressions: what a match costs is bounded, and what is not supported is named."""

from __future__ import annotations

import pytest

from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.regex_match import Matcher, Text
from engine.operators.expressions.regex_syntax import Options, Reader


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


def test_back_references_are_refused_by_name() -> None:
    with pytest.raises(RowError, match="not supported: a back reference"):
        matcher(r"(a)\1")
