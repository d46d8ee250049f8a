"""`headrace deadletters list | replay | discard`: the records that were set aside, and what is done with them.

Always: a letter is let go of only once what it changes is bound, or at the user's word; its bytes are never printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from connectors.letters import Letter, LettersError
from sidecar.again import by_id
from sidecar.config import Settings
from sidecar.console import show
from sidecar.making import make_letters
from sidecar.requests import ask


def list_letters(settings: Settings, table: str | None, *, as_json: bool) -> None:
    """All letters, or those of one table. Raises LettersError."""
    found = [x for x in make_letters(settings).read() if table is None or x.table == table]
    rows = [(x.id, x.table, _when(x), x.reason) for x in found]
    tables = [show.table(f"{len(found)} dead letters", ("letter", "table", "set aside", "why"), rows)]
    show.emit({"letters": [x.facts() for x in found]}, as_json=as_json, tables=tables)


def replay_letters(settings: Settings, ids: Sequence[str], timeout: float, *, as_json: bool) -> None:
    """Have the running sidecar take letters in. Raises LettersError where one of them was refused, RequestError."""
    letters = make_letters(settings)
    chosen = by_id(letters, ids)
    told = ask(settings.state, "replay", {"letters": [x.json() for x in chosen]}, timeout)["letters"] if chosen else []
    letters.discard([x["id"] for x in told if x["outcome"] != "refused"])
    rows = [(x["id"], x["outcome"], x["why"]) for x in told]
    tables = [show.table(f"{len(told)} dead letters", ("letter", "outcome", "why"), rows)]
    show.emit({"letters": told}, as_json=as_json, tables=tables)


def discard_letters(settings: Settings, ids: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Let go of letters for good. Raises LettersError."""
    if not ids and not everything:
        raise LettersError("no letter is named", hint="name some, or give --all")
    letters = make_letters(settings)
    chosen = [x.id for x in by_id(letters, ids)]
    letters.discard(chosen)
    tables = [show.table(f"{len(chosen)} dead letters discarded", ("letter",), [(x,) for x in chosen])]
    show.emit({"discarded": chosen}, as_json=as_json, tables=tables)


def _when(letter: Letter) -> str:
    return datetime.fromtimestamp(letter.at_ms / 1000, UTC).isoformat(timespec="seconds")
