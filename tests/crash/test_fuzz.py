"""Debezium's records mutated at will: rows, marks or a named error, never a crash, a hang or a silent skip."""

from __future__ import annotations

import random

import pytest

from headrace.connectors.formats.table_specs import CannotDecode
from headrace.connectors.formats.text_output import interval_text, numeric_text, unscaled_text
from tests.connectors.formats.events import decode, envelope, table
from tests.crash.fuzz import CANARY, Fuzz, fuzz, mutated
from tests.crash.record import FILE


def test_mutated_records_are_decoded_or_named() -> None:
    tally = fuzz(2500, seed=13)
    assert tally.wrong == []
    assert tally.records >= 2500
    assert min(tally.became[kind] for kind in ("row", "mark", "undecodable")) > 100


@pytest.mark.parametrize("seed", ["7/70059", "7/128903"])
def test_a_mutation_that_names_another_table_of_the_same_topic_is_that_tables(seed: str) -> None:
    """Told as a silent skip once: a flipped bit made a name that nothing declares and that is sanitised to the same topic."""
    made = Fuzz(FILE)
    made.run(seed)
    assert made.tally.wrong == []


def test_a_silent_skip_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.connectors.formats.envelope._undecodable", lambda *_: None)
    tally = fuzz(200, seed=13)
    assert tally.wrong


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (numeric_text, "1e999999999"), (numeric_text, "-1E-999999999"), (interval_text, "PT1E999999999S"),
        (lambda _: unscaled_text(1, -999_999_999), ""), (lambda _: unscaled_text(1, 999_999_999), ""),
    ],
)  # fmt: skip
def test_an_exponent_that_no_numeric_has_is_refused_before_its_zeros_are_written(make: object, text: str) -> None:
    """Found by fuzzing (seed 9/733): one short number took a gigabyte and half a minute."""
    with pytest.raises(CannotDecode):
        make(text)  # type: ignore[operator]


@pytest.mark.parametrize("harm", [{"txId": [5]}, {"lsn": []}, {"lsn": "17"}, {"ts_us": 1.5}, {"lsn": True}])
def test_an_events_own_numbers_are_integers(harm: dict[str, object]) -> None:
    """Found by fuzzing (seed 9/2963): a list where a number should be made a lane of two dimensions."""
    spec = table("public.t", {"id": "integer"})
    whole, bad = (envelope("c", None, {"id": n}, "public.t") for n in (1, 2))
    bad["source"].update(harm)
    found = decode(spec, [whole, bad, whole])
    assert [c.rows.column(0).to_pylist() for c in found.changes] == [[1, 1]]
    assert [u.offset for u in found.undecodable] == [101]


def test_mutations_are_of_many_kinds_and_the_same_for_a_seed() -> None:
    value = b'{"op": "c", "source": {"table": "t", "lsn": 5}, "after": {"id": 1}}'
    made = [mutated(value, random.Random(seed)) for seed in range(300)]
    assert made == [mutated(value, random.Random(seed)) for seed in range(300)]
    assert len(set(made)) > 200
    assert any(CANARY.encode() in m for m in made)
    assert any(b"\xff" in m or b"\x00" in m for m in made)


@pytest.mark.parametrize("depth", [2_000, 300_000])
@pytest.mark.parametrize("around", [b"%b", b'{"op":"c","source":{"schema":"public","table":"t"},"after":%b}'])
def test_what_is_nested_too_deep_is_named(around: bytes, depth: int) -> None:
    """Found by fuzzing (seed 13/202): the parser's RecursionError ended the sidecar."""
    spec = table("public.t", {"id": "integer"})
    found = decode(
        spec, [envelope("c", None, {"id": 1}, "public.t"), around % (b"[" * depth), around % (b'{"a":' * depth)]
    )
    assert [c.rows.column(0).to_pylist() for c in found.changes] == [[1]]
    assert [u.offset for u in found.undecodable] == [101, 102]
