"""A compiled view as a picture: its plan as a tree of boxes, with the arrangements that each look-up reads.

Always: one SVG that needs nothing else, readable on light and on dark ground; a pure function of the plan. Called by
`headrace explain --svg`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from headrace.views.compile import CompiledView
from headrace.views.explain import Told, told

_WIDE, _LINE, _GAP_X, _GAP_Y, _PAD = 230, 15, 24, 36, 10
_LETTERS = 34
"""So many letters a line of a box has room for."""

_STYLE = """
text{font:12px system-ui,sans-serif;fill:#1b2733}.word{font-weight:600}.note{font-size:11px;fill:#4a6072}
.box{fill:#f4f7fa;stroke:#8aa0b4}.leaf{fill:#e3f0e6;stroke:#5d9a6b}.arranged{fill:#fff6df;stroke:#c79a2e}
.own{fill:#e3f0e6;stroke:#5d9a6b}.shared{fill:#e6ecfb;stroke:#5b78c7}.edge{stroke:#8aa0b4;fill:none}
@media (prefers-color-scheme:dark){text{fill:#e8eef4}.note{fill:#a9bccd}.box{fill:#22303c}.leaf,.own{fill:#1f3a28}
.arranged{fill:#40351a}.shared{fill:#222f52}}
"""


@dataclass(frozen=True)
class _Box:
    """A node as drawn: its lines, the notes under it with their classes, and its inputs."""

    word: str
    lines: tuple[str, ...]
    notes: tuple[tuple[str, str], ...]
    inputs: tuple[_Box, ...]

    @property
    def height(self) -> int:
        return _PAD * 2 + _LINE * (1 + len(self.lines)) + sum(_LINE + 6 for _ in self.notes)

    @property
    def span(self) -> int:
        below = sum(b.span for b in self.inputs) + _GAP_X * max(len(self.inputs) - 1, 0)
        return max(_WIDE, below)


def picture(view: CompiledView, others: Sequence[CompiledView] = ()) -> str:
    """The view's plan as SVG, the view on top; green is a table's own arrangement, blue one that other views share."""
    root = _box(told(view, others))
    parts: list[str] = []
    depth = _drawn(root, _PAD, _PAD * 4, parts)
    width, height = root.span + 2 * _PAD, depth + _PAD
    title = escape(f"view {view.name}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<title>{title}</title><style>{_STYLE}</style><text class="word" x="{_PAD}" y="{_PAD * 2}">{title}</text>'
        f"{''.join(parts)}</svg>\n"
    )


def _box(node: Told) -> _Box:
    notes = tuple((_kind(own=a.own, shared=bool(names)), _note(str(a), names)) for a, names in node.arranged)
    return _Box(node.word, tuple(_folded(node.text)), notes, tuple(_box(below) for below in node.inputs))


def _kind(*, own: bool, shared: bool) -> str:
    return "own" if own else "shared" if shared else "arranged"


def _note(arranged: str, names: Sequence[str]) -> str:
    return f"{arranged}, with {', '.join(names)}" if names else arranged


def _folded(text: str, most: int = 4) -> list[str]:
    """A text in lines that fit, the last cut short where there are too many."""
    lines: list[str] = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _LETTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    lines = [_cut(line) for line in lines if line]
    return lines if len(lines) <= most else [*lines[: most - 1], _cut(lines[most - 1] + " …")]


def _cut(line: str) -> str:
    return line if len(line) <= _LETTERS + 2 else line[:_LETTERS] + "…"


def _drawn(box: _Box, left: int, top: int, parts: list[str]) -> int:
    """Draw a box in the middle of its span, and its inputs below; the lowest point of all."""
    x, bottom = left + (box.span - _WIDE) // 2, top + box.height
    full = escape(" ".join([box.word, *box.lines]))
    kind = "box" if box.inputs else "leaf"
    parts.append(
        f'<g><title>{full}</title><rect class="{kind}" x="{x}" y="{top}" width="{_WIDE}" height="{box.height}" rx="6"/>'
    )
    y = top + _PAD + _LINE - 3
    parts.append(f'<text class="word" x="{x + _PAD}" y="{y}">{escape(box.word)}</text>')
    for line in box.lines:
        y += _LINE
        parts.append(f'<text x="{x + _PAD}" y="{y}">{escape(line)}</text>')
    for shade, note in box.notes:
        y += _LINE + 6
        parts.append(
            f'<rect class="{shade}" x="{x + 6}" y="{y - _LINE + 2}" width="{_WIDE - 12}" height="{_LINE + 2}" rx="3"/>'
            f'<text class="note" x="{x + _PAD}" y="{y - 1}">{escape(_cut(note))}<title>{escape(note)}</title></text>'
        )
    parts.append("</g>")
    lowest, at = bottom, left
    for below in box.inputs:
        middle = at + below.span // 2
        parts.append(
            f'<path class="edge" d="M{x + _WIDE // 2} {bottom} C{x + _WIDE // 2} {bottom + _GAP_Y // 2} '
            f'{middle} {bottom + _GAP_Y // 2} {middle} {bottom + _GAP_Y}"/>'
        )
        lowest = max(lowest, _drawn(below, at, bottom + _GAP_Y, parts))
        at += below.span + _GAP_X
    return lowest
