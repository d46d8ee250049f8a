"""SEARCH and CYCLE behind an item of WITH RECURSIVE, read with any number of columns into the item's node.

Called by the dialect's parser, which reads only text that Postgres's own grammar has accepted.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from headrace.views.sql.parsing.nodes import Cycle, Search


def read_clauses(parser: Any, cte: exp.Expr) -> None:
    """Read SEARCH and CYCLE behind an item of WITH, as `search` and `cycle` of its node."""
    if parser._match_text_seq("SEARCH"):
        depth = bool(parser._match_text_seq("DEPTH"))
        parser._match_text_seq(*(() if depth else ("BREADTH",)), "FIRST", "BY")
        columns = parser._parse_csv(parser._parse_id_var)
        parser._match_text_seq("SET")
        cte.set("search", Search(depth=depth, expressions=columns, sequence=parser._parse_id_var()))
    if parser._match_text_seq("CYCLE"):
        columns = parser._parse_csv(parser._parse_id_var)
        parser._match_text_seq("SET")
        mark = parser._parse_id_var()
        closed, other = exp.true(), exp.false()
        if parser._match_text_seq("TO"):
            closed = parser._parse_unary()
            parser._match_text_seq("DEFAULT")
            other = parser._parse_unary()
        parser._match_text_seq("USING")
        path = parser._parse_id_var()
        cte.set("cycle", Cycle(expressions=columns, mark=mark, closed=closed, other=other, path=path))
