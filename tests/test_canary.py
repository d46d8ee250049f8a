"""The canary sings: an error, a log, a checkpoint or an answer with a password in it is noticed."""

from __future__ import annotations

from pathlib import Path

from headrace.engine.errors import HeadraceError
from tests.canary import Canary

SECRET = "0123456789abcdef-canary"


def test_it_is_seen_wherever_it_stands(tmp_path: Path) -> None:
    canary = Canary()
    canary.watch(f"postgresql://u:{SECRET}@h/d")
    canary.watch("postgresql://u:word@h/d")
    for name, text in (("headrace.yaml", SECRET), ("sidecar.log", f"a {SECRET}"), ("state/generations/1/manifest.json", SECRET),
                       ("other.log", "a word"), ("views/v.yaml", SECRET)):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert canary.look_at_files(tmp_path) == 3
    with canary.looking():
        HeadraceError("a word")
        HeadraceError("no", database=SECRET)
    HeadraceError("not looked at", database=SECRET)
    canary.look(b"a word", "/status")
    canary.look(SECRET.encode(), "/metrics")
    seen = [Path(told).name for told in canary.told]
    assert seen == ["sidecar.log", "manifest.json", "an error: HeadraceError, no", "metrics"]
