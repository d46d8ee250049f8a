"""String constants with escapes (E'…', U&'…'), and constants in several pieces, as plain strings before parsing.

Always: what follows sees one string token where Postgres sees one constant, at the same place. Called by `parse`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.quoting import paired, unescaped

_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|''", re.DOTALL)


class BadConstant(Exception):
    """A constant that Postgres does not read; `token` is where."""

    def __init__(self, reason: str, token: Token) -> None:
        super().__init__(reason)
        self.token = token


def plain_strings(tokens: Sequence[Token], text: str) -> list[Token]:
    """The tokens, each string constant being one plain string token. Raises BadConstant."""
    out: list[Token] = []
    escaped = False
    for token in tokens:
        kind, raw = token.token_type, text[token.start : token.end + 1]
        try:
            if out and kind is TokenType.STRING and out[-1].token_type is TokenType.STRING:
                if "\n" not in text[out[-1].end + 1 : token.start]:
                    raise BadConstant(f'syntax error at or near "{raw}"', token)
                out[-1].text += _escaped(raw[1:-1]) if escaped else token.text
                out[-1].end = token.end
                continue
            if kind is TokenType.STRING and len(out) > 1 and _is_escape_word(out):
                word, constant = out.pop(), out[-1]
                if len(token.text) != 1 or token.text in "+'\" \t\n" or token.text.isalnum():
                    raise BadConstant("invalid Unicode escape character", token)
                constant.text = unescaped(_raw_unicode(constant, text), token.text)
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
