"""String constants and names with escapes (E'…', U&'…', U&"…") or in several pieces as plain ones, and numbers in every
spelling as decimal ones, before parsing.

Always: what follows sees one token where Postgres sees one constant, at the same place. Called by `parse`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.text.quoting import paired, unescaped

SINGLE_BITS = 24
"""A float of so many bits at most is a real."""
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''", re.DOTALL)


class BadConstant(Exception):
    """A constant that Postgres does not read; `token` is where."""

    def __init__(self, reason: str, token: Token) -> None:
        super().__init__(reason)
        self.token = token


def plain_numbers(tokens: Sequence[Token], text: str) -> list[Token]:
    """The tokens, each number (`0x1F`, `0b11`, `1_000.5`) being one token of decimal digits. Raises BadConstant."""
    out: list[Token] = []
    end = 0
    for token in tokens:
        if token.start < end:
            continue  # a part of the number before it
        found = NUMBER.match(text, token.start)
        if found is not None and (
            token.token_type in _NUMERIC or (token.token_type is TokenType.DOT and not _ends(out))
        ):
            end = found.end()
            spelled = found[0].replace("_", "")
            token.text = str(int(spelled, 0)) if found["radix"] else spelled if spelled[0] != "." else f"0{spelled}"
            token.token_type, token.end = TokenType.NUMBER, end - 1
        out.append(token)
    return out


_NUMERIC = (TokenType.NUMBER, TokenType.HEX_STRING, TokenType.BIT_STRING)
_DIGITS = r"\d+(?:_\d+)*"
NUMBER = re.compile(
    rf"(?:(?P<radix>0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+)"
    rf"|(?:{_DIGITS}(?:\.(?!\.)(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)",
    re.ASCII,
)


def _ends(tokens: Sequence[Token]) -> bool:
    """Whether a dot behind these tokens belongs to what they name."""
    kinds = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.R_BRACKET)
    return bool(tokens) and tokens[-1].token_type in kinds


def plain_names(tokens: Sequence[Token], text: str) -> list[Token]:
    """The tokens, each name with escapes (`U&"…"`, and `UESCAPE` behind it) being one name. Raises BadConstant."""
    out: list[Token] = []
    left = list(tokens)[::-1]
    while left:
        token = left.pop()
        out.append(token)
        if text[token.start : token.start + 3].lower() != 'u&"' or token.end != token.start or len(left) < 2:
            continue
        left.pop()
        name = left.pop()
        escape, end = "\\", name.end
        if len(left) > 1 and left[-1].text.lower() == "uescape" and left[-2].token_type is TokenType.STRING:
            left.pop()
            end, escape = left[-1].end, _escape_character(left.pop())
        try:
            token.text = unescaped(text[name.start + 1 : name.end].replace('""', '"'), escape)
        except RowError as error:
            raise BadConstant(str(error), token) from None
        token.token_type, token.end = TokenType.IDENTIFIER, end
    return out


def _escape_character(token: Token) -> str:
    return token.text


def plain_strings(tokens: Sequence[Token], text: str) -> list[Token]:
    """The tokens, each string constant being one plain string token. Raises BadConstant."""
    out: list[Token] = []
    escaped = False
    for token in tokens:
        kind, raw = token.token_type, text[token.start : token.end + 1]
        if kind is TokenType.HEREDOC_STRING and not (out and out[-1].token_type is TokenType.STRING):
            token.token_type = TokenType.STRING
            out.append(token)
            continue
        try:
            if out and kind is TokenType.STRING and out[-1].token_type is TokenType.STRING:
                out[-1].text += _escaped(raw[1:-1]) if escaped else token.text
                out[-1].end = token.end
                continue
            if kind is TokenType.STRING and len(out) > 1 and _is_escape_word(out):
                word, constant = out.pop(), out[-1]
                constant.text = unescaped(_raw_unicode(constant, text), _escape_character(token))
                constant.token_type, constant.end = TokenType.STRING, max(token.end, word.end)
                continue
            if out and out[-1].token_type is TokenType.UNICODE_STRING and token.text.lower() != "uescape":
                _settle(out[-1], text)
            escaped = kind is TokenType.BYTE_STRING
            if escaped:
                token.text, token.token_type = _escaped(raw[2:-1]), TokenType.STRING
        except RowError as error:
            raise BadConstant(str(error), token) from None
        out.append(token)
    if out and out[-1].token_type is TokenType.UNICODE_STRING:
        _settle(out[-1], text)
    return out


def _is_escape_word(out: Sequence[Token]) -> bool:
    return out[-2].token_type is TokenType.UNICODE_STRING and out[-1].text.lower() == "uescape"


def _raw_unicode(token: Token, text: str) -> str:
    return text[token.start + 3 : token.end].replace("''", "'")


def _settle(token: Token, text: str) -> None:
    try:
        token.text, token.token_type = unescaped(_raw_unicode(token, text)), TokenType.STRING
    except RowError as error:
        raise BadConstant(str(error), token) from None


def _escaped(raw: str) -> str:
    """What stands between the quotes of E'…', its escapes read."""
    out = bytearray()
    at = 0
    for match in _ESCAPE.finditer(raw):
        out += raw[at : match.start()].encode()
        at = match.end()
        if match[1] or match[2]:
            out.append(int(match[1], 8) & 255 if match[1] else int(match[2], 16))
        elif match[3] or match[4]:
            code = int(match[3] or match[4], 16)
            if not 0 < code <= 0x10FFFF:
                raise RowError("invalid Unicode escape value")
            out += chr(code).encode("utf-8", "surrogatepass")
        elif match[5] in ("u", "U"):
            raise RowError("invalid Unicode escape")
        else:
            out += _ESCAPES.get(match[5], match[5]).encode() if match[5] else b"'"
    out += raw[at:].encode()
    try:
        found = out.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        wrong = " ".join(f"0x{b:02x}" for b in out[error.start : error.end])
        raise RowError(f'invalid byte sequence for encoding "UTF8": {wrong}') from None
    if "\0" in found:
        raise RowError('invalid byte sequence for encoding "UTF8": 0x00')
    return paired(found)


INTERVAL_UNITS = {
    *("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"),
    *(f"{unit}({digits})" for unit in ("", "SECOND") for digits in range(7)),
}
"""What may stand behind an interval's text: units, with the digits of its seconds."""
_IN_PARENTHESES = (TokenType.L_PAREN, TokenType.NUMBER, TokenType.R_PAREN)


def precise_intervals(tokens: Sequence[Token]) -> list[Token]:
    """The tokens, the digits of an interval's seconds being part of its unit: `second(2)`, and `(2)` where it has none. Raises
    BadConstant.
    """
    out: list[Token] = []
    left = list(tokens)[::-1]
    while left:
        token = left.pop()
        out.append(token)
        if len(left) < 3 or tuple(t.token_type for t in left[:-4:-1]) != _IN_PARENTHESES:
            continue
        if not left[-2].text.isdigit():
            continue
        told = f"({min(int(left[-2].text), 6)})"
        of_second = token.text.lower() == "second" and _is_of_interval(out[:-1])
        if of_second:
            token.text, token.end = f"{token.text}{told}", left[-3].end
            del left[-3:]
        elif token.token_type is TokenType.INTERVAL and len(left) > 3 and left[-4].token_type is TokenType.STRING:
            unit = left.pop()
            unit.text, unit.token_type, unit.end = told, TokenType.VAR, left[-2].end
            del left[-2:]
            out += [left.pop(), unit]
    return out


def _is_of_interval(before: Sequence[Token]) -> bool:
    """Whether a unit behind these tokens is an interval's: behind its text, or its type's name."""
    kinds = [t.token_type for t in before]
    at = len(before) - 1
    if at > 1 and before[at].text.lower() == "to" and before[at - 1].text.upper() in INTERVAL_UNITS:
        at -= 2
    at -= at > 0 and kinds[at] is TokenType.STRING
    return at >= 0 and kinds[at] is TokenType.INTERVAL
