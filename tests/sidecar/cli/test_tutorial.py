"""The newcomer's ten minutes: README's, the tutorial's and the runbook's own commands, typed as they stand, on embedded parts.

Always: nothing is done that the pages do not say, but for what the clone of the repository has and this test runs in: the
environment, the jars and the kernels. What they show of an answer must be in the answer.
"""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MADE = "make setup jars kernels"
"""The one command that is not typed: it makes what the test runs in."""
MINUTES = 10
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """(language, text, what stands before it since the last one) of each block of a page."""
    text, found, end = page.read_text(), [], 0
    for one in _BLOCK.finditer(text):
        found.append((one[1], one[2], text[end : one.start()]))
        end = one.end()
    return found


class Terminal:
    """A shell in which lines are typed; `failed`: the commands that did not end with 0, each with its code."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed: list[tuple[int, str]] = []
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_") or k == "HEADRACE_CACHE"}
        env |= {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}
        self.shell = subprocess.Popen(
            ["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=folder, env=env,
        )  # fmt: skip
        self.type("""set -m; trap 'echo "FAILED $? $BASH_COMMAND"' ERR""")

    def type(self, lines: str) -> str:
        """What the shell says to these lines."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        self.shell.stdin.write(f"{lines}\necho; echo END-OF-BLOCK\n")
        self.shell.stdin.flush()
        said = []
        for line in self.shell.stdout:
            if line.strip() == "END-OF-BLOCK":
                break
            failed = re.match(r"FAILED (\d+) (.*)", line)
            if failed:
                self.failed.append((int(failed[1]), failed[2]))
            said.append(line)
        return "".join(said)

    def close(self) -> None:
        self.shell.kill()
        self.shell.communicate()


class Newcomer:
    """Follows the tutorial. `running`: the log of `headrace run`, which has a terminal of its own."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.here = terminal.folder
        self.running = self.here / "shop" / "run.log"

    def until(self, said: str) -> None:
        """Wait until the other terminal says something."""
        end = time.monotonic() + 120
        while said not in (self.running.read_text() if self.running.exists() else ""):
            assert time.monotonic() < end, self.running.read_text()[-3000:] if self.running.exists() else "nothing"
            time.sleep(0.2)

    def do(self, lines: str) -> str:
        """Type the lines of a block: `headrace run` in a terminal of its own."""
        lines = "\n".join(line for line in lines.splitlines() if not line.startswith(MADE))
        if lines.startswith("headrace run"):
            said = self.terminal.type("headrace run >run.log 2>&1 & RUN=$!")
            self.until("event=running")
            return said
        return self.terminal.type(lines)

    def instructed(self, prose: str) -> None:
        """What a reader does who follows the prose between two blocks."""
        if found := re.search(r"`(mkdir \w+ && cd \w+)`", prose):
            self.terminal.type(found[1])
        if found := re.search(r"Take `(.+?)` out of the SQL", prose):
            view = self.here / "shop" / "views" / "shop.yaml"
            assert found[1] in view.read_text()
            view.write_text(view.read_text().replace(found[1], ""))
        if "Press Ctrl-C where `headrace run` runs" in prose:
            self.terminal.type("kill -INT $RUN; wait $RUN")
            assert "event=stopped" in self.running.read_text()


def shown(text: str) -> list[str]:
    """The lines of an answer that a page shows, without what changes from run to run or is left out."""
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line and not re.search(r"…|┃|│|epoch \d|budget_mib", line)]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_newcomer_has_a_fresh_view_by_the_pages_alone(tmp_path: Path) -> None:
    clone = tmp_path / "headrace"
    clone.mkdir()
    for name in (".venv", "examples", "docs"):
        (clone / name).symlink_to(ROOT / name)
    terminal = Terminal(clone)
    newcomer = Newcomer(terminal)
    began, fresh = time.monotonic(), 0.0
    try:
        [replay] = [text for kind, text, _ in blocks(ROOT / "README.md") if kind == "sh" and "headrace replay" in text]
        assert "revenue_by_customer" in terminal.type(replay)
        said = ""
        for kind, text, prose in blocks(ROOT / "docs" / "tutorial.md"):
            newcomer.instructed(prose)
            if kind == "sh":
                said = newcomer.do(text)
                if "headrace status" in text.splitlines():
                    assert re.search(r"orders_by_customers\W+fresh", said), said
                    fresh = fresh or time.monotonic() - began
                    look(terminal)
            elif kind == "yaml":
                place = re.search(r"Write `([\w/.]+)`", prose)
                assert place, prose
                (clone / "shop" / place[1]).write_text(text)
            else:
                plain = re.sub(r"\s+", " ", said)
                assert all(line in plain for line in shown(text)), (shown(text), said)
        terminal.type("rm -r ../.headrace")
    finally:
        for line in ("kill $RUN", "cd ..; headrace dev down", "cd ..; headrace dev down"):
            terminal.type(f"trap - ERR; {line} 2>/dev/null")
        terminal.close()
    advised = [(code, said) for code, said in terminal.failed if not (code == 1 and said.startswith("headrace doctor"))]
    assert advised == []
    assert 0 < fresh < MINUTES * 60
    assert not (clone / ".headrace").exists()


def look(terminal: Terminal) -> None:
    """What the runbook looks at first, but for pods."""
    [first, *_] = [text for kind, text, _ in blocks(ROOT / "docs" / "runbook.md") if kind == "sh"]
    lines = [line for line in textwrap.dedent(first).splitlines() if not line.startswith("kubectl")]
    assert len(lines) == 3
    said = terminal.type("\n".join(lines))
    assert '"views"' in said
    assert "ok" in said or "ready" in said


def test_what_a_page_shows_is_compared_without_what_changes() -> None:
    """The blocks of the tutorial are found, each kind of them."""
    found = blocks(ROOT / "docs" / "tutorial.md")
    assert {kind for kind, _, _ in found} == {"sh", "yaml", ""}
    assert found[0][1].startswith(MADE)
    assert any(shown(text) for kind, text, _ in found if not kind)
