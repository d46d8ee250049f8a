"""A small `make tpch`: the benchmark's own rows, loaded in random order in transactions, and the refreshes, beside Postgres."""

from __future__ import annotations

import numpy as np

from headrace.engine.batch.updates import DELETE, UPSERT
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.oracle.test_views import connect
from tests.oracle.tpch.history import REFRESHES, history
from tests.oracle.tpch.rows import tables
from tests.oracle.tpch.trial import EVERY, Trial

SCALE = 0.01
"""The least at which the generator's rows of partsupp have different keys."""


def test_equal_at_every_tenth_frontier(postgres: EmbeddedPostgres) -> None:
    past = history(tables(SCALE), loading=20, seed=3)
    with connect(postgres, "tpch_scale") as connection:
        trial = Trial(connection, past, seed=3)
        frontiers = [frontier.epoch for frontier in trial.run()]
    assert frontiers == [*range(EVERY - 1, past.epochs, EVERY), *([past.epochs - 1] if past.epochs % EVERY else [])]
    assert {name: kept.different for name, kept in trial.kept.items() if kept.different} == {}
    assert sum(bool(kept.changes) for kept in trial.kept.values()) >= 20, "too few views changed"


def test_refreshes_insert_and_delete_whole_orders() -> None:
    made = tables(SCALE)
    past = history(made, loading=20, seed=5)
    orders, lines = past.within("orders", 0, past.epochs), past.within("lineitem", 0, past.epochs)
    assert orders is not None
    assert lines is not None
    deleted = orders.kinds == DELETE
    assert int(deleted.sum()) == REFRESHES * 20
    assert int(((orders.epochs >= past.loading) & (orders.kinds == UPSERT)).sum()) == REFRESHES * 20
    when = dict(zip(orders.rows.column("o_orderkey").to_numpy()[deleted], orders.epochs[deleted], strict=True))
    of = lines.rows.column("l_orderkey").to_numpy()
    gone = lines.kinds == DELETE
    assert [when[o] for o in of[gone]] == lines.epochs[gone].tolist()
    assert int(gone.sum()) == int(np.isin(made["lineitem"].column("l_orderkey").to_numpy(), list(when)).sum())
