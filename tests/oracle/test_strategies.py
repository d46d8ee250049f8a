"""Twenty queries and ten programs by state against history; `python -m tests.oracle.strategies` runs more."""

from __future__ import annotations

from tests.oracle.strategies import Account, program_differs, queries_differ


def test_queries_are_the_same_by_whichever_strategy() -> None:
    account = Account()
    assert [found for seed in range(700, 704) if (found := queries_differ(seed, account))] == []
    assert account.followed["updates"]


def test_programs_are_the_same_by_whichever_strategy() -> None:
    account = Account()
    assert [found for seed in range(700, 710) if (found := program_differs(seed, account))] == []
    assert account.kept
    assert account.followed["updates"]
    assert account.followed["dropped"]
