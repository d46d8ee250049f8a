"""The decoder against its naive twin, over random runs with every operation and every kind of damage."""

from __future__ import annotations

import base64
import gc
import json
import sys
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.connectors.changes import Decoded, MessageBatch
from headrace.connectors.formats import envelope as envelope_module
from headrace.connectors.formats.envelope import EnvelopeDecoder
from headrace.connectors.formats.table_specs import Encodings
from headrace.connectors.formats.temporal import civil
from tests.connectors.formats.events import envelope, messages, source, table
from tests.reference import debezium as twin

COLUMNS = {
    "id": "bigint", "n": "integer", "t": "text", "f": "double precision", "num": "numeric(12,2)", "free": "numeric",
    "d": "date", "ts": "timestamp", "tz": "timestamptz", "b": "bytea", "flag": "boolean", "j": "jsonb",
}  # fmt: skip
FLAT = table("public.t", COLUMNS, partitions=("public.leaf",))
NESTED = table("public.t", {**COLUMNS, "a": "integer[]"})
KEYLESS = table("public.t", COLUMNS, None)

_TEXT = st.text(max_size=12) | st.sampled_from(["\x00", "😀", '"\\\n\t', "x" * 8500, ',"source":{'])
_MICROS = st.integers(-62135596800 * 10**6, 253402300799 * 10**6)


def _stamp(micros: int) -> str:
    seconds, fraction = divmod(micros, 10**6)
    day, clock = divmod(seconds, 86400)
    year, month, of_month = civil(day)
    return (
        f"{year:04d}-{month:02d}-{of_month:02d}T{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
        f".{fraction:06d}Z"
    )


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**31), 2**31 - 1),
    "t": _TEXT,
    "f": st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["NaN", "Infinity", "-Infinity", 2**53 + 1, 123456789012345680000, -(2**63) - 1025, 10**300])
    | st.integers(-(2**70), 2**70),
    "num": st.decimals(-(10**10), 10**10, places=2).map(lambda d: f"{d:.2f}"),
    "free": st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20).map(
        lambda d: format(d, "f")
    ),
    "d": st.integers(-700_000, 2_900_000),
    "ts": _MICROS,
    "tz": _MICROS.map(_stamp),
    "b": st.binary(max_size=20).map(lambda b: base64.b64encode(b).decode()),
    "flag": st.booleans(),
    "j": _TEXT.map(json.dumps),
    "a": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
}
WRONG = ["x", 1.5, 2**70, [], True, {"a": 1}, "12.345", -(2**63) - 1]
JUNK = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"op":"c"}', b"3", b'{"a":1}\n{"b":2}']


@st.composite
def rows(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    made = {"id": draw(st.integers(-(2**63), 2**63 - 1))}
    made |= {n: draw(st.none() | VALUES[n]) if draw(st.booleans()) else None for n in names if n != "id"}
    damage = draw(st.integers(0, 120))
    name = draw(st.sampled_from([n for n in names if n != "id"]))
    if damage == 0:
        made[name] = draw(st.sampled_from(WRONG))
    elif damage == 1:
        del made[name]
    elif damage < 5:
        made[draw(st.sampled_from(["t", "j", "b"]))] = twin.PLACEHOLDER
    elif damage == 5:
        made["added"] = 1
    return made


@st.composite
def runs(draw: st.DrawFn, names: list[str], ops: str) -> MessageBatch:
    pool = draw(st.lists(rows(names), min_size=1, max_size=5))
    count = draw(st.sampled_from([1, 2, 20, 64, 90, 300]))
    pick = Random(draw(st.integers(0, 2**32)))
    values: list[Any] = []
    keys: list[Any] = []
    for _ in range(count):
        image, other, op = pick.choice(pool), pick.choice(pool), pick.choice(ops)
        of = pick.choice(["public.t"] * 30 + ["public.leaf", "public.other"])
        value: Any = envelope(op, None, image, of)
        if op in "UD":
            value = envelope(op.lower(), other, image if op == "U" else None, of)
        elif op == "d":
            value = envelope("d", pick.choice([{"id": 5, "t": None}, None]), None, of)
        elif op == "t":
            value = envelope("t", None, None, of)
        elif op == "m":
            value = {
                "op": "m",
                "source": source("."),
                "transaction": None,
                "message": {"prefix": "p", "content": "AA=="},
            }
        elif op == "0":
            value = None
        elif op == "!":
            value = pick.choice(JUNK)
        values.append(value)
        keys.append({"id": 6} if op == "d" else None)
    return messages(values, keys)


class RowsOnly(EnvelopeDecoder):
    """The row path alone."""

    def _typed(self, *_: Any) -> bool:
        return False


def same(one: Decoded, other: Decoded) -> None:
    """Both paths give the same changes, lane by lane, and refuse the same messages for the same reasons."""
    assert one.undecodable == other.undecodable
    assert twin.plain(one.changes) == twin.plain(other.changes)
    for name in (
        "offsets",
        "kinds",
        "transactions",
        "orders",
        "lsns",
        "timestamps",
        "snapshot",
        "metadata",
        "attempts",
    ):
        lanes = [[getattr(c, name) for c in sorted(d.changes, key=lambda c: int(c.offsets[0]))] for d in (one, other)]
        values = [[v for lane in found for v in lane.tolist()] for found in lanes]
        assert values[0] == values[1], name
        assert {lane.dtype for found in lanes for lane in found} <= {lane.dtype for lane in lanes[0]}
    moved = [[c.offsets[c.moved].tolist() for c in d.changes if c.moved is not None] for d in (one, other)]
    assert moved[0] == moved[1]
    initial = [[c for c in d.changes if (c.snapshot == 1).any()] for d in (one, other)]
    read = [
        [v for c in found if c.read_ms is not None for v in c.read_ms[c.snapshot == 1].tolist()] for found in initial
    ]
    assert read[0] == read[1]
    assert len(read[0]) == sum(int((c.snapshot == 1).sum()) for c in one.changes)


def check(spec: Any, run: MessageBatch) -> None:
    expected, bad = twin.decode(spec, run)

    def decoded() -> Any:
        return EnvelopeDecoder({spec.name: spec}, Encodings()).decode(run)

    whole = decoded()
    same(whole, RowsOnly({spec.name: spec}, Encodings()).decode(run))
    assert twin.plain(whole.changes) == expected
    assert [u.offset for u in whole.undecodable] == bad
    assert all(u.reason and u.topic == run.topic and u.partition == 3 for u in whole.undecodable)


COMMON = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@COMMON
@given(runs(list(COLUMNS), "c" * 30 + "r" * 10 + "u" * 20 + "ddd0"))
def test_a_flat_table_as_the_typed_path_sees_it(run: MessageBatch) -> None:
    check(FLAT, run)


@COMMON
@given(runs([*COLUMNS, "a"], "c" * 30 + "uuuuudddt0!m"))
def test_a_nested_table_and_damage(run: MessageBatch) -> None:
    check(NESTED, run)


@COMMON
@given(runs(list(COLUMNS), "c" * 20 + "UUUUDDDut0!"))
def test_a_keyless_table(run: MessageBatch) -> None:
    check(KEYLESS, run)


@COMMON
@given(runs(list(COLUMNS), "c" * 40 + "u" * 20 + "dd0"))
def test_any_cut_of_a_run_decodes_to_the_same(run: MessageBatch) -> None:
    """Both row paths and the typed path agree: one message at a time is the same as all at once."""
    decoder = EnvelopeDecoder({FLAT.name: FLAT}, Encodings())
    whole = decoder.decode(run)
    single = [decoder.decode(_slice(run, i, i + 1)) for i in range(len(run))]
    assert twin.plain(whole.changes) == twin.plain([c for d in single for c in d.changes])
    assert whole.undecodable == [u for d in single for u in d.undecodable]


def _slice(run: MessageBatch, low: int, high: int) -> MessageBatch:
    return MessageBatch(
        run.topic, run.partition, run.offsets[low:high], run.keys[low:high], run.values[low:high],
        run.timestamps[low:high],
    )  # fmt: skip


@pytest.mark.parametrize("snapshot", ["false", None, "last"])
@pytest.mark.parametrize("count", [3, 64, 300])
def test_the_typed_path_is_taken(count: int, snapshot: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of plain runs no more is parsed than is needed: the row path may not even be asked."""
    monkeypatch.setattr(envelope_module, "build", None)
    row = {
        "id": 1, "n": 2, "t": "x", "f": 1.5, "num": "1.25", "free": "3.10", "d": 5, "ts": 7,
        "tz": "2024-01-01T00:00:00Z", "b": "AQ==", "flag": True, "j": None,
    }  # fmt: skip
    values = [envelope("c", None, row, snapshot=snapshot)] * (count - 2) + [envelope("d", {"id": 1}), None]
    decoded = EnvelopeDecoder({FLAT.name: FLAT}, Encodings()).decode(messages(values))
    assert [len(c) for c in decoded.changes] == [count - 1]


PLAIN = {**dict.fromkeys(COLUMNS), "id": 1, "t": "x", "num": "1.25"}
DOUBTFUL: dict[str, Any] = {
    "a field missing": envelope("c", None, {n: v for n, v in PLAIN.items() if n != "num"}),
    "a text like a null field": envelope(
        "c", None, {n: v for n, v in PLAIN.items() if n != "num"} | {"t": '"num":null'}
    ),
    "another table": envelope("c", None, PLAIN, "public.other"),
    "a leaf table": envelope("c", None, PLAIN, "public.leaf"),
    "no row": envelope("c", None, None),
    "a delete without key": envelope("d", {"t": "x"}),
    "a truncate": envelope("t"),
    "an unsent value": envelope("u", None, {**PLAIN, "t": twin.PLACEHOLDER}),
    "a special number": envelope("c", None, {**PLAIN, "f": "NaN"}),
    "a fraction for an integer": envelope("c", None, {**PLAIN, "n": 1.0}),
    "bytes that are no text": b'{"op":"c","x":"\xff"}',
    "bytes that are no text in a row": (lambda b: b.replace(b'"x"', b'"\xff"', 1))(
        json.dumps(envelope("c", None, PLAIN)).encode()
    ),
    "two objects": b'{"op":"c"}\n{"op":"c"}',
    "nothing": b"",
    "a whole number between two doubles": envelope("c", None, {**PLAIN, "f": 2**53 + 1}),
    "a whole number beyond 64 bits": envelope("c", None, {**PLAIN, "f": 2**64 + 1}),
    "a whole number beyond 64 bits for an integer": envelope("c", None, {**PLAIN, "n": 2**64 + 1}),
    "a whole number beyond 64 bits for a key": envelope("c", None, {**PLAIN, "id": -(2**64)}),
    "an unknown snapshot state": envelope("c", None, PLAIN, snapshot="last"),
    "a move of a row that was not sent whole": envelope("c", None, {**PLAIN, "t": twin.PLACEHOLDER}),
    "a block without a transaction": envelope("c", None, PLAIN, transaction={"id": "7:1", "total_order": 3}),
    "a stamp in another way": envelope("c", None, {**PLAIN, "tz": "2024-02-29T23:59:59.5Z"}),
    "numbers in other ways": envelope("c", None, {**PLAIN, "num": "-0.5", "free": "007"}),
    "two lines in a number": envelope("c", None, {**PLAIN, "num": "1.25\n1.25"}),
}


@pytest.mark.parametrize("what", DOUBTFUL)
def test_where_the_typed_path_may_doubt(what: str) -> None:
    """One odd message among plain ones: the run decodes as the twin says, however the odd one is met."""
    for count in (1, 3, 80):
        values: list[Any] = [envelope("c", None, PLAIN)] * count
        values[count // 2] = DOUBTFUL[what]
        check(FLAT, messages(values))


@pytest.mark.parametrize(("kind", "count"), [(k, n) for k in ("double precision", "real") for n in (1, 70)])
def test_a_whole_number_beyond_every_digit_of_a_double_is_rounded_as_postgres_does(kind: str, count: int) -> None:
    """select 9007199254740993::float8, 123456789012345678901::float8 (or ::float4) gives the nearest, never an error."""
    spec = table("public.t", {"id": "bigint", "f": kind})
    numbers = [2**53 + 1, -(2**53) - 3, 123456789012345678901, 2**64, 3]
    rows_ = [{"id": i, "f": numbers[i % 5]} for i in range(5 * count)]
    run = messages([envelope("c", None, row) for row in rows_])
    for decoder in (EnvelopeDecoder({spec.name: spec}, Encodings()), RowsOnly({spec.name: spec}, Encodings())):
        decoded = decoder.decode(run)
        assert not decoded.undecodable
        wanted = [float(n) if kind != "real" else float(np.float32(n)) for n in numbers] * count
        assert [v for c in decoded.changes for v in c.rows.column(1).to_pylist()] == wanted


@pytest.mark.parametrize("what", sorted(DOUBTFUL))
def test_a_doubt_leaves_nothing_behind(what: str) -> None:
    """CPython 3.11 keeps the keywords of a call for ever where unpacking its arguments raises: 192 bytes a run."""
    decoder, run = EnvelopeDecoder({FLAT.name: FLAT}, Encodings()), messages([DOUBTFUL[what]])
    for _ in range(20):
        decoder.decode(run)
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(400):
        decoder.decode(run)
    gc.collect()
    assert sys.getallocatedblocks() - before < 200
