"""Regular expressions that mean the same to RE2, Arrow's engine: whether one matches is then asked of a whole column at once.

Always: of a pattern that `Reader` has taken, only what both engines read alike is translated, character by character; whether
there is a match does not depend on which is preferred. Everything else is None, and matched by ours. Called by `regexes`.
"""

from __future__ import annotations

import functools
import re

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.regex.regex_syntax import Options
from headrace.engine.operators.expressions.text.patterns import lower, upper

_PART = re.compile(
    r"(?P<same>\(\?:|\((?!\?)|[)|^$.]|\{\d{1,3}(?:,\d{0,3})?\}\??|[*+?]\??)"
    r"|\\(?P<class>[dD])"
    r"|\[(?P<not>\^?)(?P<items>(?:[0-9A-Za-z]-[0-9A-Za-z]|[^][\\^-])+)\]"
    r"|\\(?P<escaped>[!-/:-@[-^`{-~])"
    r"|(?P<plain>[^][{}\\*+?()|^$.])",
    re.ASCII,
)
_ITEM = re.compile(r"(.)-(.)|(.)", re.DOTALL)


@functools.lru_cache(maxsize=512)
def translated(pattern: str, options: Options) -> str | None:
    """The pattern for RE2; None where it might mean something else there.

    >>> translated("^a+[^b-d](x|\\\\.)$", Options())
    '(?s)^\\\\x{61}+[^\\\\x{62}-\\\\x{64}](\\\\x{78}|\\\\x{2e})$'
    >>> translated("\\\\w", Options()), translated("(?=a)", Options()), translated("(?i)a", Options())
    (None, None, None)
    """
    if options not in (Options(), Options(folded=True)) or pattern.startswith("***"):
        return None
    out, at = ["(?s)"], 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None or (part["items"] and options.folded):
            return None
        out.append(_spelled(part, options.folded))
        at = part.end()
    found = "".join(out)
    try:
        pc.match_substring_regex(pa.scalar("", pa.large_string()), found)
    except pa.ArrowInvalid:
        return None  # larger than it compiles
    return found


def _spelled(part: re.Match[str], folded: bool) -> str:
    if part["same"]:
        return part["same"]
    if part["class"]:
        return "[0-9]" if part["class"] == "d" else "[^0-9]"
    if part["items"]:
        return f"[{part['not']}{_ITEM.sub(lambda m: '-'.join(_quoted(c) for c in m.groups() if c), part['items'])}]"
    char = part["escaped"] or part["plain"]
    same = sorted({char, lower(char), upper(char)}) if folded else [char]
    return _quoted(char) if len(same) == 1 else f"[{''.join(map(_quoted, same))}]"


def _quoted(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"
