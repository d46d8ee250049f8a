"""The few pieces of Markdown that generated pages are made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table, its cells escaped.

    >>> print(table(("a", "b"), [("1", "x|y")]), end="")
    | a | b |
    | --- | --- |
    | 1 | x\|y |
    """
    lines = [
        head,
        ["---"] * len(head),
        *([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows),
    ]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def between(text: str, start: str, end: str, inside: str) -> str:
    """`text` with what stands between the lines `start` and `end` replaced. Both must be there, once.

    >>> between("a\\n<!-- s -->\\nold\\n<!-- e -->\\nz\\n", "<!-- s -->", "<!-- e -->", "new\\n")
    'a\\n<!-- s -->\\nnew\\n<!-- e -->\\nz\\n'
    """
    before, _, rest = text.partition(start + "\n")
    _, found, after = rest.partition(end)
    assert found, f"the page lost its marker {start} or {end}"
    return f"{before}{start}\n{inside}{end}{after}"
