"""`headrace deadletters list | replay | discard`: the records that were set aside, and what is done with them.

Always: a letter is let go of only once what it changes is bound, or at the user's word; its bytes are never printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.connectors.dead_letters import DeadLetter, DeadLetterError
from headrace.sidecar.cli import output
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.client import Client
from headrace.sidecar.operations.dead_letter_replay import by_id
from headrace.sidecar.wiring.factories import make_dead_letters


def list_letters(settings: Settings, table: str | None, *, as_json: bool) -> None:
    """All letters, or those of one table. Raises DeadLetterError."""
    found = [x for x in make_dead_letters(settings).read() if table is None or x.table == table]
    rows = [(x.id, x.table, _when(x), x.reason) for x in found]
    tables = [output.table(f"{len(found)} dead letters", ("letter", "table", "set aside", "why"), rows)]
    output.emit({"letters": [x.facts() for x in found]}, as_json=as_json, tables=tables)


def replay_letters(settings: Settings, url: str | None, ids: Sequence[str], timeout: float, *, as_json: bool) -> None:
    """Have the running sidecar take letters in. Raises DeadLetterError, NotRunning, RemoteError and ControlError."""
    letters = make_dead_letters(settings)
    chosen = by_id(letters, ids)
    asked = {"letters": [x.json() for x in chosen]}
    told = Client(settings, url).ask("/replay", asked, timeout)["letters"] if chosen else []
    letters.discard([x["id"] for x in told if x["outcome"] != "refused"])
    rows = [(x["id"], x["outcome"], x["why"]) for x in told]
    tables = [output.table(f"{len(told)} dead letters", ("letter", "outcome", "why"), rows)]
    output.emit({"letters": told}, as_json=as_json, tables=tables)


def discard_letters(settings: Settings, ids: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Let go of letters for good. Raises DeadLetterError."""
    if not ids and not everything:
        raise DeadLetterError("no letter is named", hint="name some, or give --all")
    letters = make_dead_letters(settings)
    chosen = [x.id for x in by_id(letters, ids)]
    letters.discard(chosen)
    tables = [output.table(f"{len(chosen)} dead letters discarded", ("letter",), [(x,) for x in chosen])]
    output.emit({"discarded": chosen}, as_json=as_json, tables=tables)


def _when(letter: DeadLetter) -> str:
    return datetime.fromtimestamp(letter.at_ms / 1000, UTC).isoformat(timespec="seconds")
