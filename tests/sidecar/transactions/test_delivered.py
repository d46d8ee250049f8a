"""The transactions that were given are known as a dictionary would know them, in a fraction of its memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from headrace.sidecar.transactions.delivered import DeliveredTransactions

IDS = st.integers(0, 40)


@given(st.lists(st.tuples(IDS, st.booleans()), max_size=200), st.integers(1, 9), st.integers(0, 60))
def test_what_is_known_is_what_was_added_last(added: list[tuple[int, bool]], span: int, most: int) -> None:
    known = DeliveredTransactions(most=most, span=span)
    order: list[tuple[int, int]] = []
    kept = False
    for lsn, (txid, keep) in enumerate(added):
        known.add(txid, lsn, keep=keep)
        order.append((txid, lsn))
        kept |= keep
        everything = dict(order)
        assert all(known.get(i) in (everything.get(i, -1), -1) for i in range(41))
        newest = dict(order[len(order) - max(0, min(len(order), most - span)) :])
        assert {i: known.get(i) for i in newest} == newest
        assert known.oldest <= min(newest.values(), default=lsn)


@given(st.lists(IDS, max_size=100), st.integers(1, 9))
def test_what_is_to_stay_stays(added: list[int], span: int) -> None:
    known = DeliveredTransactions(most=1, span=span)
    for lsn, txid in enumerate(added):
        known.add(txid, lsn, keep=True)
    everything = {txid: lsn for lsn, txid in enumerate(added)}
    assert {i: known.get(i) for i in range(41)} == {i: everything.get(i, -1) for i in range(41)}


def test_a_transaction_takes_sixteen_bytes() -> None:
    known = DeliveredTransactions()
    tracemalloc.start()
    for k in range(200_000):
        known.add(k, k)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 200_000 * 16 + 4_000_000  # and the newest in their dictionary
    assert (known.get(7), known.get(199_999), known.get(200_000), known.oldest) == (7, 199_999, -1, 0)
