"""A run is frozen before each single request that it makes of the store, another takes over, and the first wakes up.

Whatever it then still does, the newest manifest names batches that are there. Each rule that keeps this true is taken away
once: then some moment is found at which it is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.connectors.step_hooks import unwatched
from headrace.sidecar.state.batch_places import ObjectBatches, digest_of
from headrace.sidecar.state.generation import StateError
from headrace.sidecar.state.object_generation import ObjectGeneration, kept_run, take_run
from headrace.sidecar.state.objects import Counts
from headrace.sidecar.state.register import KEPT, Overtaken, Register

GRACE = 60.0
LIFE = (("a", "b"), ("b", "c"), ("a", "c"), ("c",), ("a", "b", "c"), ("b",), ("a", "b"))
"""What is in each checkpoint of a run; contents go and come back."""


class Memory:
    """A store in memory. `before`: called before each request; `clock`: seconds, which pass when told to."""

    where = "memory"

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.counts = Counts()
        self.before: Callable[[], None] = lambda: None
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def put(self, name: str, parts: Sequence[bytes]) -> bool:
        self.before()
        fresh = name not in self.held
        self.held.setdefault(name, b"".join(bytes(part) for part in parts))
        return fresh

    def get(self, name: str) -> bytes:
        self.before()
        if name not in self.held:
            raise FileNotFoundError(2, "there is no such object", name)
        return self.held[name]

    def names(self, prefix: str) -> list[str]:
        self.before()
        return sorted(name for name in self.held if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self.before()
        self.held.pop(name, None)


def take(store: Memory) -> ObjectGeneration:
    return take_run(store, Path("/nowhere"), grace=GRACE, clock=store.clock)


def live(store: Memory, pauses: float) -> None:
    """One run, from its beginning over all its checkpoints, with so many seconds after each."""
    run = take(store)
    run.begin()
    text = run.read_manifest()
    held: dict[str, str] = {} if text is None else json.loads(text)
    check(store)
    for write, contents in enumerate(LIFE, 1):
        names = {c: held.get(c) or run.place.named(digest_of([c.encode()]), write) for c in contents}
        for content in names.keys() - held.keys():
            run.place.put(names[content], [content.encode()], 0, unwatched)
        run.put_manifest(json.dumps(names).encode(), set(names.values()))
        run.sweep()
        held = names
        store.now += pauses
        check(store)


def check(store: Memory) -> None:
    """Every batch that the newest manifest names is there."""
    before, store.before = store.before, lambda: None
    try:
        text = kept_run(store, Path("/nowhere")).read_manifest()
        for content, name in json.loads(text or b"{}").items():
            assert store.held.get(f"batches/{name}") == content.encode(), f"a batch that counts is gone: {name}"
    finally:
        store.before = before


def requests_of_a_life() -> int:
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    store = Memory()
    store.before = count
    live(store, GRACE)
    return counted


def frozen_at(request: int, pauses: float) -> None:
    """The first run freezes before its request of this number; the second lives; the first wakes up."""
    store, left = Memory(), request

    def freeze() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            store.before = lambda: None
            live(store, pauses)

    store.before = freeze
    with suppress(Overtaken, StateError):
        live(store, pauses)
    check(store)
    store.before = lambda: None
    live(store, pauses)


@pytest.fixture(autouse=True)
def no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)


@pytest.mark.parametrize("pauses", [0.0, GRACE / 2, GRACE])
def test_no_moment_is_bad_to_be_frozen(pauses: float) -> None:
    assert len(LIFE) > KEPT, "records are deleted meanwhile"
    moments = requests_of_a_life()
    assert moments > 40
    for request in range(moments):
        frozen_at(request, pauses)


def fails_somewhere() -> bool:
    for request in range(200):
        try:
            frozen_at(request, GRACE)
        except AssertionError as wrong:
            return "a batch that counts is gone" in str(wrong)
    return False


def test_without_names_that_are_never_used_again_a_batch_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectBatches, "named", lambda _, digest, __: digest)
    assert fails_somewhere()


def test_without_a_chain_that_each_writes_once_a_batch_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later record than ours is not looked for, and a place that was deleted counts as free."""
    real = Register._numbers
    monkeypatch.setattr(
        Register, "append", lambda self, body, after: _written(self, body, max([after, *real(self)]) + 1)
    )
    assert fails_somewhere()


def _written(register: Register, body: object, number: int) -> int:
    text = json.dumps({"generation": register._generation, "nonce": "", "body": body}).encode()
    register._objects.put(register._name(number), [text])
    return number
