"""The shop's traffic as a process of its own: `python -m examples.demo.writer RATE SEED [SAMPLES EVERY [STEADY]]`.
The database's URL, which holds a password, comes by the environment (`shop.URL`).

Always: each transaction is whole and committed before the next; the rate is kept by a schedule, so that a late one is made
up for; it ends at SIGTERM with the number of transactions on standard output. Of every EVERY-th transaction it writes a line
to the file SAMPLES: the seconds of the monotonic clock after its COMMIT returned, an LSN that only it and what was committed
after it pass, and the number of the order that it placed, 0 if it placed none. From STEADY orders on about as many go as come.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

from examples.demo.shop import URL, Book


def main(url: str, rate: float, seed: int, samples: Path | None = None, every: int = 1, steady: int = 0) -> int:
    """Write `rate` transactions a second until SIGTERM; returns how many."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    done = 0
    with ExitStack() as opened:
        db = opened.enter_context(psycopg.connect(url))
        notes = opened.enter_context(samples.open("w")) if samples is not None else None
        book = open_book(db, seed)
        book.steady = steady
        begin = time.monotonic()
        while not stopping:
            first = book.next_order
            # one message out and one back, as an application's batch does: the writer shares the cores it measures
            with db.pipeline(), db.transaction(), db.cursor() as cursor:
                book.transact(cursor)
                # before the commit, so that the commit of this transaction is the first to lie beyond it
                lsn = _insert_lsn(cursor) if notes is not None and done % every == 0 else None
            if notes is not None and lsn is not None:
                placed = first if book.next_order > first else 0
                notes.write(f"{time.monotonic():.6f} {lsn} {placed}\n")
            done += 1
            ahead = begin + done / rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            elif ahead < -5:
                begin = time.monotonic() - done / rate
    sys.stdout.write(f"{done}\n")
    return done


def _insert_lsn(cursor: psycopg.Cursor[tuple[object, ...]]) -> int:
    found = cursor.execute("select (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
    assert found is not None, "a function gives one row"
    return int(str(found[0]))


def open_book(db: psycopg.Connection, seed: int) -> Book:
    """A book that goes on where the shop's tables are."""
    with db.transaction():
        found = db.execute(
            "select (select count(*) from customers), (select count(*) from products),"
            " (select coalesce(max(id), 0) from orders)"
        ).fetchone()
        assert found is not None, "an aggregate gives one row"
        customers, products, last = found
        book = Book(random.Random(seed), customers, products, last + 1)  # noqa: S311 (a demo's data)
        book.settled = [r[0] for r in db.execute("select id from orders where status = 'paid' order by id limit 5000")]
    return book


if __name__ == "__main__":
    sampling = sys.argv[3:6]
    main(
        os.environ[URL], float(sys.argv[1]), int(sys.argv[2]),
        samples=Path(sampling[0]) if sampling else None, every=int(sampling[1]) if sampling else 1,
        steady=int(sampling[2]) if len(sampling) > 2 else 0,
    )  # fmt: skip
