"""The parser of heads and bodies: atoms, negation, alternatives, aggregates, and expressions as their tokens.

Invariant: an expression's brackets are matched and it is not empty. Called by `grammar`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.views.datalog_text.syntax import (
    Aggregate,
    Argument,
    Atom,
    Condition,
    Expression,
    Literal,
    Negative,
    Positive,
    Rule,
)
from headrace.views.datalog_text.tokens import Token, Wrong

AGGREGATES = frozenset({"count", "sum", "min", "max", "mean"})
MOST_ALTERNATIVES = 256
MOST_NESTED = 50
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ENDS = frozenset({",", ";", ".", ":-"})
_COMPARED = frozenset({"=", "!=", "<>"})
_WORDS = "a dot at its end"
_APART = frozenset({",", "=", "!=", "<>", "<", ">", "<=", ">="})
"""Marks between operands of their own."""
_BITWISE = {"band": "&", "bor": "|", "bxor": "#", "bshl": "<<", "bshr": ">>"}


class BodyParser:
    """Reads tokens one after the other; `at` is the next one's place."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.added: list[Rule] = []

    @property
    def now(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def take(self) -> Token:
        """The next token, which is then read; the end stays."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def accept(self, text: str) -> bool:
        """Whether the next token is that mark, which is then read."""
        if self.now.kind != "mark" or self.now.text != text:
            return False
        self.take()
        return True

    def expect(self, text: str, what: str) -> Token:
        """The mark. Raises Wrong where something else stands."""
        if self.now.kind != "mark" or self.now.text != text:
            raise self.unexpected(what)
        return self.take()

    def name(self, what: str) -> Token:
        """A name. Raises Wrong where something else stands."""
        if self.now.kind != "name":
            raise self.unexpected(what)
        return self.take()

    def unexpected(self, what: str) -> Wrong:
        """That the next token is not what stands here."""
        shown = f'"{self.now.text}"' if self.now.kind != "end" else "the end of the program"
        known = {"$": "algebraic types and autoincrement are", "@": "user functors are"}
        if self.now.text in known:
            return Wrong(
                self.now.start, f"{known[self.now.text]} not supported", "use a column of an input or SQL's functions"
            )
        return Wrong(self.now.start, f"syntax error at {shown}", f"expected {what}")

    # Bodies.

    def disjunction(self) -> list[tuple[Literal, ...]]:
        """Alternatives, each a conjunction."""
        found = self.conjunction()
        while self.accept(";"):
            found += self.conjunction()
        return found

    def conjunction(self) -> list[tuple[Literal, ...]]:
        """One conjunction, multiplied out."""
        found: list[tuple[Literal, ...]] = [()]
        begin = self.now.start
        while True:
            more = self.term()
            found = [(*one, *two) for one in found for two in more]
            if len(found) > MOST_ALTERNATIVES:
                raise Wrong(begin, f"the body has more than {MOST_ALTERNATIVES} alternatives", "give some a relation")
            if not self.accept(","):
                return found

    def term(self) -> list[tuple[Literal, ...]]:
        """A negation, alternatives in parentheses, or one literal."""
        if self.accept("!"):
            if self.now.kind != "name":
                raise self.unexpected("the atom that must not hold: !relation(…)")
            begin, atom = self.at, self.atom()
            return [(Negative(atom, Expression(tuple(self.tokens[begin : self.at]))),)]
        if self.now.text == "(" and self.now.kind == "mark":
            after = self.tokens[self.closing(self.at) + 1]
            if after.kind == "end" or after.text in _ENDS or after.text in (")", "}"):
                self.take()
                self.nest()
                found = self.disjunction()
                self.depth -= 1
                self.expect(")", ")")
                return found
        return [(self.literal(),)]

    def nest(self) -> None:
        """One bracket deeper. Raises Wrong where there are too many."""
        self.depth += 1
        if self.depth > MOST_NESTED:
            self.depth = 0
            raise Wrong(
                self.now.start, "the brackets are nested too deeply", "give the inner part a relation of its own"
            )

    def literal(self) -> Literal:
        """An atom or a condition."""
        begin = self.at
        if self.now.kind == "name" and self.tokens[begin + 1].text == "(":
            after = self.tokens[self.closing(begin + 1) + 1]
            if after.kind == "end" or (after.kind == "mark" and (after.text in _ENDS or after.text in (")", "}"))):
                atom = self.atom()
                return Positive(atom, Expression(tuple(self.tokens[begin : self.at])))
        return self.comparison() or Condition(self.expression())

    def comparison(self) -> Condition | None:
        """A record or a variable beside an (in)equality sign and another one; None where something else stands."""
        begin = self.at
        if self.now.text == "[" and self.now.kind == "mark":
            one = self.argument()
            if self.now.text not in _COMPARED:
                raise self.unexpected("= or != and another record: records have no other comparison")
        elif self.is_compared(begin):
            one = Argument(Expression((self.take(),)), self.tokens[begin].start)
        else:
            return None
        sign = self.take()
        two = self.argument()
        return Condition(Expression(tuple(self.tokens[begin : self.at])), (one, two), sign.text == "=")

    def is_compared(self, at: int) -> bool:
        """Whether a name stands at a place, then a sign, then a record or a name that ends the literal."""
        name, sign, other, after = (self.tokens[min(at + k, len(self.tokens) - 1)] for k in range(4))
        if name.kind != "name" or name.text in AGGREGATES or sign.kind != "mark" or sign.text not in _COMPARED:
            return False
        if other.kind == "mark":
            return other.text == "["
        ends = after.kind == "end" or (after.kind == "mark" and (after.text in _ENDS or after.text in (")", "}")))
        return other.kind == "name" and "_" not in (name.text, other.text) and ends

    def closing(self, at: int) -> int:
        """The place of the bracket that closes the one at a place. Raises Wrong where there is none."""
        open_ones: list[str] = []
        for place in range(at, len(self.tokens)):
            token = self.tokens[place]
            if token.kind != "mark":
                continue
            if token.text in _CLOSING:
                open_ones.append(_CLOSING[token.text])
            elif token.text in _CLOSING.values():
                if open_ones.pop() != token.text:
                    raise Wrong(token.start, f'"{token.text}" closes a bracket of another kind', "check the brackets")
                if not open_ones:
                    return place
        raise Wrong(self.tokens[at].start, f'"{self.tokens[at].text}" is not closed', "check the brackets")

    def atom(self) -> Atom:
        """`name(arguments)`."""
        name = self.name("the name of a relation")
        if self.now.text == "." and self.now.start == name.end and self.tokens[self.at + 1].kind == "name":
            raise Wrong(name.start, "components are not supported", "name a relation of this program")
        self.expect("(", f"the arguments of {name.text} in parentheses")
        found: list[Argument] = []
        while self.now.text != ")":
            found.append(self.argument())
            if self.now.text != ")":
                self.expect(",", "a comma or )")
        return Atom(name.text, tuple(found), name.start, self.take().end)

    def argument(self) -> Argument:
        """`_`, an expression, or `column = expression`."""
        token, after = self.now, self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        name = None
        if token.kind == "name" and after.kind == "mark" and after.text == "=":
            name = token.text
            self.at += 2
        if self.now.text == "[" and self.now.kind == "mark":
            self.take()
            self.nest()
            fields: list[Argument] = []
            while not self.accept("]"):
                fields.append(self.argument())
                if self.now.text != "]":
                    self.expect(",", "a comma or ]")
            self.depth -= 1
            if not fields:
                raise Wrong(token.start, "a record has no fields", "write _ where its value does not matter")
            return Argument(None, token.start, name, tuple(fields))
        if self.now.text == "_" and self.tokens[self.at + 1].text in (",", ")", "]"):
            self.take()
            return Argument(None, token.start, name)
        return Argument(self.expression(), token.start, name)

    # Expressions.

    def expression(self) -> Expression:
        """The tokens up to the end of a literal or an argument, in which aggregates are parsed."""
        pieces: list[Token | Aggregate] = []
        open_ones: list[str] = []
        bitwise: list[str] = [""]
        while self.now.kind != "end":
            token = self.now
            if token.text in _BITWISE and token.kind == "name" and _ends_an_operand(pieces):
                pieces.append(self.bitwise(bitwise))
                continue
            if token.text == "bnot" and token.kind == "name" and self.tokens[self.at + 1].text != "(":
                pieces += self.inverted()
                continue
            if token.kind == "mark":
                if not open_ones and (token.text in _ENDS or token.text in (")", "}", "]")):
                    break
                if token.text in ("{", "}", "$", "@", ":", ":-") or (token.text in ";." and token.kind == "mark"):
                    raise self.unexpected("an expression")
                if token.text in ("(", "["):
                    open_ones.append(_CLOSING[token.text])
                    bitwise.append("")
                elif token.text in (")", "]"):
                    bitwise.pop()
                    if open_ones.pop() != token.text:
                        reason = f'"{token.text}" closes a bracket of another kind'
                        raise Wrong(token.start, reason, "check the brackets")
                elif token.text in _APART:
                    bitwise[-1] = ""
            if token.kind == "name" and token.text in AGGREGATES and self.is_aggregate():
                pieces.append(self.aggregate())
                continue
            if token.kind == "name" and token.text == "_":
                raise Wrong(token.start, "_ has no value", "give the variable a name")
            if token.text == "autoinc":
                raise Wrong(token.start, "autoincrement is not supported", "use a key of the inputs' rows")
            pieces.append(self.take())
        if not pieces or open_ones:
            raise self.unexpected("an expression" if not pieces else open_ones[-1])
        return Expression(tuple(pieces))

    def bitwise(self, before: list[str]) -> Token:
        """An operator on bits, which Soufflé spells as a word, as SQL's; `before`: the last one in each open bracket. Raises
        Wrong."""
        word = self.take()
        if before[-1] not in ("", word.text):
            reason = f"{before[-1]} and {word.text} stand side by side"
            raise Wrong(word.start, reason, "put brackets around one: SQL takes them from left to right")
        before[-1] = word.text
        return Token("mark", _BITWISE[word.text], word.start, word.end)

    def inverted(self) -> list[Token]:
        """`bnot x` in brackets, as SQL's `~` takes all that `+` and `*` join. Raises Wrong."""
        word = self.take()
        at = word.start
        if self.now.text == "bnot" and self.now.kind == "name":
            inner = self.inverted()
        elif self.now.kind in ("name", "number") and self.tokens[self.at + 1].text != "(":
            inner = [self.take()]
        else:
            raise self.unexpected("a variable, a number or brackets behind bnot")
        return [Token("mark", "(", at, at), Token("mark", "~", at, word.end), *inner, Token("mark", ")", at, at)]

    def is_aggregate(self) -> bool:
        """Whether a colon follows the aggregate's name, or the value behind it."""
        depth = 0
        for token in self.tokens[self.at + 1 :]:
            if token.kind == "mark":
                if depth == 0 and token.text == ":":
                    return True
                if depth == 0 and (token.text in _ENDS or token.text in (")", "]", "{", "}", "=", "<", ">")):
                    return False
                depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        return False

    def aggregate(self) -> Aggregate:
        """`count : { body }`, `sum value : { body }`, or the same with one atom and no braces."""
        word = self.take()
        value = None
        if self.now.text != ":":
            begin = self.at
            while self.now.text != ":" or self.now.kind != "mark":
                self.take()
            value = Expression(tuple(self.tokens[begin : self.at]))
            if any(t.text == "_" for t in self.tokens[begin : self.at]):
                raise Wrong(self.tokens[begin].start, "_ has no value", "give the variable a name")
        elif word.text != "count":
            raise Wrong(word.start, f"{word.text} says no value", f"write {word.text} x : {{ … }}")
        self.expect(":", "a colon")
        if self.now.text != "{":
            atom = self.atom()
            return Aggregate(word.text, value, (Positive(atom, Expression((word,))),), word.start, atom.end)
        self.take()
        self.nest()
        bodies = self.disjunction()
        self.depth -= 1
        end = self.expect("}", "}").end
        body = bodies[0] if len(bodies) == 1 else self.alternatives(bodies, word.start, end)
        return Aggregate(word.text, value, body, word.start, end)

    def alternatives(self, bodies: Sequence[tuple[Literal, ...]], begin: int, end: int) -> tuple[Literal, ...]:
        """An atom of a relation of our own, with a rule for each alternative. It holds each combination of the variables that
        all alternatives share once.
        """
        each = [list(_alone(body)) for body in bodies]
        names = [n for n in dict.fromkeys(each[0]) if all(n in other for other in each[1:])]
        arguments = tuple(Argument(Expression((Token("name", n, begin, begin),)), begin) for n in names)
        if not names:
            raise Wrong(
                begin, "the alternatives of the aggregate have no variable in common", "name what is aggregated in each"
            )
        atom = Atom(f"alternatives {len(self.added) + 1}", arguments, begin, end)
        self.added += [Rule(atom, body, "the alternatives of an aggregate", begin) for body in bodies]
        return (Positive(atom, Expression((Token("name", atom.name, begin, begin),))),)


def _ends_an_operand(pieces: Sequence[Token | Aggregate]) -> bool:
    """Whether an operator may follow these pieces of an expression."""
    last = pieces[-1] if pieces else None
    return isinstance(last, Aggregate) or (last is not None and (last.kind != "mark" or last.text in (")", "]")))


def _alone(body: Sequence[Literal]) -> Iterator[str]:
    """The variables that stand alone in an atom, or beside an equals sign."""
    for literal in body:
        if isinstance(literal, Positive):
            values: Sequence[Expression | None] = [a.value for a in literal.atom.arguments]
        else:
            values = (literal.expression.equated() or ()) if isinstance(literal, Condition) else ()
        yield from (v.variable for v in values if v is not None and v.variable is not None)
