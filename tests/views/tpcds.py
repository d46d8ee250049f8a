"""`python -m tests.views.tpcds FOLDER`: which queries of a folder of SQL we would keep as views, and why not the others.

Always: tables come from the CREATE TABLEs among the `*.sql` files below the folder, each other statement that begins with SELECT
or WITH is a query; nothing is run, and nothing of the folder is kept but counts and reasons. A query that Postgres itself refuses
is not told apart. Written for TPC-DS's 99 queries, whose texts are not ours to have. Writes build/tpcds.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import sqlglot
from sqlglot import exp

from headrace.engine.schema import Column, DataType, Schema
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_query
from headrace.views.errors import ViewError
from headrace.views.spec import ViewSpec
from tests.oracle.run import reason

BEGINS = (sqlglot.TokenType.SELECT, sqlglot.TokenType.WITH, sqlglot.TokenType.L_PAREN)
"""What a query begins with."""


def statements(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, number within it; text) of each statement."""
    for path in sorted(folder.rglob("*.sql")):
        text = path.read_text(errors="replace")
        tokens = sqlglot.tokenize(text, read="postgres")
        start = number = 0
        for token in tokens:
            if token.token_type == sqlglot.TokenType.SEMICOLON or token is tokens[-1]:
                end = token.start if token.token_type == sqlglot.TokenType.SEMICOLON else token.end + 1
                number += 1
                yield f"{path.relative_to(folder)}:{number}", text[start:end].strip()
                start = token.end + 1


def table_of(text: str) -> tuple[str, Schema] | None:
    """A CREATE TABLE's name and schema; None for anything else."""
    tree = sqlglot.parse_one(text, dialect="postgres")
    if not isinstance(tree, exp.Create) or not isinstance(tree.this, exp.Schema):
        return None
    key = next((tuple(c.name for c in k.expressions) for k in tree.find_all(exp.PrimaryKey)), None)
    columns = []
    for given in tree.this.find_all(exp.ColumnDef):
        kinds = {type(c.kind) for c in given.constraints}
        if exp.PrimaryKeyColumnConstraint in kinds:
            key = (given.name,)
        assert given.kind is not None
        held = exp.NotNullColumnConstraint in kinds or given.name in (key or ())
        columns.append(Column(given.name, DataType.parse(given.kind.sql("postgres")), nullable=not held))
    return f"public.{tree.this.this.name}", Schema.of(columns, key)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    tables: dict[str, Schema] = {}
    queries: dict[str, str] = {}
    for name, text in statements(chosen.folder):
        begins = sqlglot.tokenize(text, read="postgres")[:2]
        if [t.token_type for t in begins] == [sqlglot.TokenType.CREATE, sqlglot.TokenType.TABLE]:
            if (made := table_of(text)) is not None:
                tables.setdefault(*made)
        elif begins and begins[0].token_type in BEGINS:
            queries[name] = text
    catalog = Catalog(tables)
    refused: dict[str, list[str]] = defaultdict(list)
    for name, text in queries.items():
        try:
            compile_query(ViewSpec("q", text), catalog, {})
        except ViewError as error:
            refused[reason(error.what)].append(name)
    taken = len(queries) - sum(map(len, refused.values()))
    sys.stdout.write(f"{len(tables)} tables, {len(queries)} queries: {taken} taken, {len(queries) - taken} refused\n")
    for why, names in sorted(refused.items(), key=lambda item: -len(item[1])):
        sys.stdout.write(f"{len(names):5}  {why}  ({', '.join(names[:12])})\n")
    report = Path("build/tpcds.json")
    report.parent.mkdir(exist_ok=True)
    body = {"queries": len(queries), "taken": taken, "refused": {why: len(names) for why, names in refused.items()}}
    report.write_text(json.dumps(body, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
