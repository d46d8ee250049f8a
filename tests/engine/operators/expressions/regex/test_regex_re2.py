"""What is handed to RE2 means there what it means to our matcher, the twin, which Postgres is the oracle of."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.regex.regex_re2 import translated
from headrace.engine.operators.expressions.regex.regex_states import Text
from headrace.engine.operators.expressions.regex.regex_syntax import Options
from headrace.engine.operators.expressions.regex.regexes import matcher

PIECES = st.sampled_from([
    *"abzAK0.^$|()-_ é\n#K", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{2,}?", "(?:", "(?=", "[ab]", "[^a]", "[a-c0]",
    "[^A-Z]", "[]a]", "[a-]", "[[:alpha:]]", r"\d", r"\D", r"\w", r"\.", r"\*", r"\\", r"\m", r"\1", r"\_", "]", "{", "}",
])  # fmt: skip
TEXTS = st.lists(st.text("abczAK0.-_ é\n\\#K", max_size=7), min_size=1, max_size=5)


@given(st.lists(PIECES, min_size=1, max_size=7).map("".join), st.booleans(), TEXTS)
def test_re2_finds_what_ours_finds(pattern: str, folded: bool, texts: list[str]) -> None:
    options = Options(folded=folded)
    try:
        ours = matcher(pattern, options)
    except RowError:
        return  # refused before RE2 is asked
    found = translated(pattern, options)
    if found is None:
        return
    theirs = pc.match_substring_regex(pa.array(texts, pa.large_string()), found).to_pylist()
    assert theirs == [ours.found(Text(text)) for text in texts]


@pytest.mark.parametrize("pattern", ["^a.*b$", "(foo|ba[rz])+", r"\d{3}-\d{4}", "x{2,3}?y", "[^a-z ]", "naïve"])
def test_what_most_write_is_handed_over(pattern: str) -> None:
    assert translated(pattern, Options()) is not None


@pytest.mark.parametrize(
    "pattern", [r"\w+", r"(a)\1", "(?=a)b", "(?i)a", "***=a", "[[:alpha:]]", r"\mword", "[]a]", "a]"]
)
def test_what_may_mean_something_else_is_not(pattern: str) -> None:
    assert translated(pattern, Options()) is None
