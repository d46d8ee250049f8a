"""A view's small change by row: what goes and what comes as texts, and the statements for them.

Invariant: it equals what `by_column` makes of the same change; deletes go before inserts. Pure; the sink calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.connectors import copy_text
from headrace.connectors.copy_text import Texts
from headrace.connectors.postgres import statements
from headrace.connectors.postgres.ddl import Names, Table
from headrace.connectors.postgres.delta.by_column import Net, fingerprint, two_rows
from headrace.connectors.postgres.pipeline import Step
from headrace.connectors.sink import ViewChanges


@dataclass(frozen=True)
class Few:
    """`puts`: rows to be there; `takes`: rows to go (keyed: whose key goes). Counts: copies of a keyless view's rows."""

    table: Table
    puts: Sequence[Texts]
    takes: Sequence[Texts]
    put_counts: Sequence[int]
    take_counts: Sequence[int]

    def __len__(self) -> int:
        return len(self.puts) + len(self.takes)

    def steps(self, names: Names) -> Iterator[Step]:
        """The statements that apply it."""
        table = self.table
        if table.view.key is None:
            if self.takes:
                tail = (_array(_fingerprints(self.takes)), _array(map(str, self.take_counts)))
                statement = statements.take_copies(names, table, None)
                yield Step(statement, tail, sum(self.take_counts), table.view.name)
            if self.puts:
                tail = (_array(_fingerprints(self.puts)), _array(map(str, self.put_counts)))
                copies = statements.put_copies(names, table, None)
                filled = (*_columns(self.puts), *tail)
                yield Step(copies, filled, sum(self.put_counts), table.view.name, comes=True)
            return
        for nulls, keys in self._null_patterns():
            params = [c for c, null in zip(_columns(keys), nulls, strict=True) if not null]
            yield Step(statements.take_keys(names, table, nulls, None), params, len(keys), table.view.name)
        if self.puts:
            rows = len(self.puts) if table.replaces else None
            yield Step(statements.put_rows(names, table, None), _columns(self.puts), rows, table.view.name, comes=True)

    def _null_patterns(self) -> list[tuple[tuple[bool, ...], list[Texts]]]:
        """The keys of the takes by which of their columns are null, as `=` finds no null."""
        groups: dict[tuple[bool, ...], list[Texts]] = {}
        for row in self.takes:
            key = tuple([row[i] for i in self.table.view.key or ()])
            groups.setdefault(tuple([v is None for v in key]), []).append(key)
        return sorted(groups.items())


def few(sink: str, table: Table, change: ViewChanges) -> Few:
    """The net of a small `change` over all its epochs. Raises SinkError for two rows of one key."""
    rows = copy_text.text_rows(table.view.schema, change.rows)
    sums: dict[Texts, int] = {}
    for row, diff in zip(rows, change.diffs.tolist(), strict=True):
        sums[row] = sums.get(row, 0) + diff
    if table.view.key is None:
        kept = sorted(((row, n) for row, n in sums.items() if n), key=lambda one: _sortable(one[0]))
        puts, takes = [one for one in kept if one[1] > 0], [one for one in kept if one[1] < 0]
        return Few(table, [r for r, _ in puts], [r for r, _ in takes], [n for _, n in puts], [-n for _, n in takes])
    key = table.view.key
    put: dict[Texts, Texts] = {}
    for row, n in sums.items():
        if n > 0:
            image_of_key = tuple([row[i] for i in key])
            if n > 1 or image_of_key in put:
                raise two_rows(sink, table)
            put[image_of_key] = row
    gone = {k: row for row, n in sums.items() if n < 0 and (k := tuple([row[i] for i in key])) not in put}
    return Few(table, _ordered(put), _ordered(gone), [1] * len(put), [1] * len(gone))


def fewer(net: Net) -> Few:
    """A small net of a large change."""
    rows = list(zip(*[text.to_pylist() for text in net.texts], strict=True)) if net.texts else [()] * len(net.lines)
    puts, takes = [rows[i] for i in net.puts.tolist()], [rows[i] for i in net.takes.tolist()]
    return Few(net.table, puts, takes, net.put_counts.tolist(), net.take_counts.tolist())


def _sortable(texts: Texts) -> list[tuple[bool, str]]:
    return [(t is None, t or "") for t in texts]


def _ordered(by_key: dict[Texts, Texts]) -> list[Texts]:
    """The rows sorted by their keys, so that every flush takes its locks in one order."""
    return [by_key[k] for k in sorted(by_key, key=_sortable)]


def _fingerprints(rows: Sequence[Texts]) -> list[str]:
    return [fingerprint(copy_text.line(row)) for row in rows]


def _columns(rows: Sequence[Texts]) -> list[bytes]:
    """Each column of `rows` as the input text of an array."""
    return [_array(["NULL" if v is None else _quoted(v) for v in column]) for column in zip(*rows, strict=True)]


def _quoted(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def _array(values: Iterator[str] | Sequence[str] | map[str]) -> bytes:
    return f"{{{','.join(values)}}}".encode()
