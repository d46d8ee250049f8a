"""The parser of Datalog programs: recursive descent over the tokens, one clause after the other.

A mistake ends its clause; the parser goes on behind the next `.`, so that all mistakes of a program are told at once. What
Soufflé has and this language has not is refused by name. Invariant: no text makes it raise. Called by `headrace.views.view_files`
for the names of a program's outputs and by `headrace.views.datalog` for the rest.
"""

from __future__ import annotations

from functools import lru_cache

from headrace.views.datalog_text.bodies import BodyParser
from headrace.views.datalog_text.records import compares_records, flatten, has_records
from headrace.views.datalog_text.syntax import (
    Constraint,
    Declared,
    Input,
    Literal,
    Mistake,
    Output,
    Program,
    Query,
    Rule,
    query_key,
)
from headrace.views.datalog_text.tokens import Token, Wrong, tokens

REFUSED = {
    "comp": ("components are not supported", "write the rules out, or make a program of each component"),
    "init": ("components are not supported", "write the rules out, or make a program of each component"),
    "functor": ("user functors are not supported", "call a function of SQL in the rule"),
    "lattice": ("lattices are not supported", "aggregate in a rule of its own"),
    "override": ("components are not supported", "write the rules out, or make a program of each component"),
    "include": (".include is not supported", "write the rules into one program; other programs' views are inputs"),
    "plan": (".plan is not supported: the order of joins is chosen from the data", "leave it out"),
    "pragma": (".pragma is not supported", "leave it out"),
    "printsize": (".printsize is not supported", "count the rows: n(c) :- c = count : { relation(_) }."),
    "limitsize": (".limitsize is not supported", "bound the rules by a condition; limits.rounds bounds a recursion"),
}
_QUALIFIERS = {
    "eqrel": ("eqrel is not supported", "write the rules: r(y, x) :- r(x, y).  r(x, z) :- r(x, y), r(y, z)."),
    "choice": ("choice-domain is not supported", "take min or max of each group with an aggregate"),
    "btree_delete": ("subsumption is not supported", "take min or max of each group with an aggregate"),
    "inline": ("inline is not supported: relations are inlined where that is cheaper", "leave it out"),
}
_IGNORED = frozenset({"brie", "btree", "magic", "no_magic", "no_inline", "overridable"})


@lru_cache(maxsize=64)
def parse_program(text: str) -> Program:
    """The program of a text, with all mistakes of its syntax."""
    program = Program(text)
    found: list[Token] = []
    try:
        found.extend(tokens(text))
    except Wrong as wrong:
        program.mistakes.append(Mistake(wrong.at, wrong.reason, wrong.hint))
        found = _readable(text)
    parser = _Parser(program, found)
    parser.program_text()
    program.rules += parser.added
    if not program.mistakes and has_records(program):
        try:
            flatten(program)
        except Wrong as wrong:
            program.mistakes.append(Mistake(wrong.at, wrong.reason, wrong.hint))
            program.has_wrong_records = True
    elif compares_records(program):
        program.has_wrong_records = True
    if not program.mistakes and not (program.rules or program.outputs or program.queries or program.constraints):
        program.mistakes.append(Mistake(0, "the program is empty", "write rules and .output relation"))
    return program


def _readable(text: str) -> list[Token]:
    """The whole clauses before the first character that begins no token."""
    found: list[Token] = []
    ends = 0
    try:
        for token in tokens(text):
            found.append(token)
            if token.text == ".":
                ends = len(found)
    except Wrong:
        pass
    return [*found[:ends], Token("end", "", len(text), len(text))]


class _Parser(BodyParser):
    """Parses one program into `program`."""

    def __init__(self, program: Program, found: list[Token]) -> None:
        super().__init__(found)
        self.program = program

    def program_text(self) -> None:
        """All clauses."""
        while self.now.kind != "end":
            begin = self.at
            try:
                if self.now.text == ".":
                    self.directive()
                else:
                    self.clause()
            except Wrong as wrong:
                self.recover(begin)
                self.program.mistakes.append(Mistake(wrong.at, wrong.reason, wrong.hint, self.written(begin)))

    def written(self, begin: int) -> str:
        """The text from a token to the last one read, on one line and not too long."""
        last = self.tokens[max(self.at - 1, begin)]
        text = " ".join(self.program.text[self.tokens[begin].start : last.end].split())
        return text if len(text) <= 100 else text[:97] + "..."

    def recover(self, begin: int) -> None:
        """Goes behind the end of the clause, which a `.` is that no name follows directly; or before a directive."""
        self.at = max(self.at, begin + 1)
        while self.now.kind != "end":
            token = self.take()
            if token.text == "." and (self.now.start > token.end or self.now.kind != "name"):
                return
            if token.text == "." and token.start > self.tokens[self.at - 2].end:
                self.at -= 1
                return

    # Directives.

    def directive(self) -> None:
        """One `.word …`."""
        dot = self.take()
        word = self.now
        if word.kind != "name" or word.start != dot.end:
            raise Wrong(dot.start, "a clause begins with the name of a relation or with a directive", "remove the dot")
        self.take()
        known = {
            "decl": self.decl,
            "type": self.type,
            "input": self.input,
            "output": self.output,
            "query": self.query,
            "constraint": self.constraint,
        }
        if word.text in REFUSED:
            raise Wrong(dot.start, *REFUSED[word.text])
        if word.text not in known:
            raise Wrong(
                dot.start, f"there is no directive .{word.text}", f"there are {', '.join('.' + k for k in known)}"
            )
        known[word.text]()

    def decl(self) -> None:
        """`.decl name(column: type, …)`."""
        names = [self.name("a relation's name")]
        while self.accept(","):
            names.append(self.name("a relation's name"))
        columns: list[tuple[str, str | None, int]] = []
        self.expect("(", "its columns in parentheses")
        while not self.accept(")"):
            column = self.name("a column's name")
            typed = self.accept(":")
            at = self.now.start if typed else column.start
            columns.append((column.text, self.type_name() if typed else None, at))
            if self.now.text != ")":
                self.expect(",", "a comma or )")
        whole = False
        while self.now.text in _QUALIFIERS or self.now.text in _IGNORED:
            word = self.take()
            whole |= word.text == "no_magic"
            if word.text in _QUALIFIERS:
                raise Wrong(word.start, *_QUALIFIERS[word.text])
        self.program.declared += [Declared(n.text, tuple(columns), n.start, whole) for n in names]

    def type_name(self) -> str:
        """A type as SQL spells it, or as Soufflé does."""
        words = [self.name("a type").text]
        while self.now.kind == "name" and words[-1].lower() in ("double", "character", "timestamp", "time", "with",
                                                                "without", "bit"):  # fmt: skip
            words.append(self.take().text)
        while self.now.kind == "name" and self.now.text.lower() == "zone":
            words.append(self.take().text)
        text = " ".join(words)
        if self.accept("("):
            sizes = [self.take().text]
            while self.accept(","):
                sizes.append(self.take().text)
            self.expect(")", ")")
            text += f"({','.join(sizes)})"
        while self.accept("["):
            self.expect("]", "]")
            text += "[]"
        return text

    def type(self) -> None:
        """`.type name = type`, `.type name <: type`, or `.type name = type | type`."""
        name = self.name("the type's name")
        is_part = self.accept("<:")
        if not is_part:
            self.expect("=", "= or <:")
        if self.accept("["):
            fields: list[tuple[str, str]] = []
            while not self.accept("]"):
                field = self.name("a field's name").text
                self.expect(":", "a colon and the field's type")
                fields.append((field, self.type_name()))
                if self.now.text != "]":
                    self.expect(",", "a comma or ]")
            self.program.records[name.text] = tuple(fields)
            return
        begin = self.now
        members = [self.type_name()]
        if self.now.text == "{":
            hint = "add a column that says which, and a relation for each kind"
            raise Wrong(begin.start, "algebraic types are not supported", hint)
        while self.accept("|"):
            members.append(self.type_name())
        self.program.types[name.text] = members[0]
        if is_part:
            self.program.above.setdefault(name.text, {})[members[0]] = name.start
        elif len(members) > 1:
            for member in members:
                self.program.above.setdefault(member, {})[name.text] = name.start

    def input(self) -> None:
        """`.input name(columns) = schema.table(columns)`."""
        name = self.name("a relation's name")
        columns = self.column_names() if self.now.text == "(" else None
        if not self.accept("="):
            hint = f"write .input {name.text} = schema.table"
            raise Wrong(name.start, f"the input {name.text} does not say where its rows come from", hint)
        schema, table, given, table_at = self.table()
        if columns is not None and given is not None and len(columns) != len(given):
            reason = f"the input {name.text} has {len(columns)} columns and reads {len(given)}"
            raise Wrong(name.start, reason, "name as many columns of the table")
        names = None if columns is None else tuple(c for c, _ in columns)
        self.program.inputs.append(Input(name.text, names, schema, table, given, name.start, table_at))

    def table(self) -> tuple[str | None, str, tuple[tuple[str, int], ...] | None, int]:
        """`schema.table(columns)`: the schema or None, the table, the columns or None, and the place."""
        first = self.name("a table or view")
        schema, table_at = None, first.start
        if self.now.text == "." and self.now.start == first.end and self.tokens[self.at + 1].start == self.now.end:
            self.take()
            schema, first = first.text, self.name("a table")
        return schema, first.text, self.column_names() if self.now.text == "(" else None, table_at

    def query(self) -> None:
        """`.query name(+given, -found)`, and `from schema.table(columns)` where a table or view asks."""
        name = self.name("a relation's name")
        self.expect("(", "its columns in parentheses, + before those that are given and - before the others")
        columns: list[tuple[str, bool, int]] = []
        while not self.accept(")"):
            if self.now.text not in ("+", "-"):
                raise self.unexpected("+ before a column that is given, or - before one that is to be found")
            given = self.take().text == "+"
            column = self.name("a column's name")
            columns.append((column.text, given, column.start))
            if self.now.text != ")":
                self.expect(",", "a comma or )")
        key = query_key(name.text)
        asked = None
        if self.now.kind == "name" and self.now.text == "from":
            self.take()
            schema, table, read, table_at = self.table()
            asked = Input(f"asked {key}", None, schema, table, read, name.start, table_at)
        self.program.queries.append(Query(name.text, tuple(columns), asked, name.start))

    def column_names(self) -> tuple[tuple[str, int], ...]:
        """Names in parentheses."""
        self.expect("(", "(")
        found = []
        while not self.accept(")"):
            token = self.name("a column's name")
            found.append((token.text, token.start))
            if self.now.text != ")":
                self.expect(",", "a comma or )")
        return tuple(found)

    def output(self) -> None:
        """`.output name(columns), …`."""
        while True:
            name = self.name("a relation's name")
            columns = self.column_names() if self.now.text == "(" else None
            names = None if columns is None else tuple(c for c, _ in columns)
            self.program.outputs.append(Output(name.text, names, name.start))
            if not self.accept(","):
                return

    def constraint(self) -> None:
        """`.constraint name: body.`."""
        begin = self.at
        name = self.name("the constraint's name")
        self.expect(":", "a colon and what must never be")
        bodies = self.disjunction()
        self.expect(".", "a dot at its end")
        self.program.constraints.append(Constraint(name.text, tuple(bodies), self.written(begin), name.start))

    # Rules.

    def clause(self) -> None:
        """A fact or a rule, which may have several heads."""
        begin = self.at
        if self.now.text == ":-":
            raise Wrong(self.now.start, "the rule has no head", "name a constraint: .constraint name: body.")
        heads = [self.atom()]
        while self.accept(","):
            heads.append(self.atom())
        bodies: list[tuple[Literal, ...]] = [()]
        if self.now.text == "<=":
            raise Wrong(
                self.now.start, "subsumption is not supported", "take min or max of each group with an aggregate"
            )
        if self.accept(":-"):
            bodies = self.disjunction()
        self.expect(".", "a dot at the end of the rule")
        text = self.written(begin)
        start = self.tokens[begin].start
        self.program.rules += [Rule(head, body, text, start) for body in bodies for head in heads]
