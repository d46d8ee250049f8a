"""The sidecar with one wrong diff, on purpose: `python -m examples.demo.faulty run …`. The demo and its test must notice.

After a while a few rows of one view are lost on their way to the sinks; everything else is the sidecar as it is.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Int64s, Updates
from headrace.sidecar.cli import app
from headrace.sidecar.delivery.view_state import ViewState

AFTER, UNTIL = 10, 15
"""Which steps' changes of the chosen view are harmed."""


def break_one(view: str = "order_totals") -> None:
    """Lose the first added row of some steps of `view`."""
    take = ViewState.take
    seen: list[int] = []

    def faulty(state: ViewState, ends: Int64s) -> object:
        if state.view.name == view:
            output_take = state.output.take

            def once() -> tuple[Updates, Updates]:
                rows, errors = output_take()
                if len(rows):
                    seen.append(1)
                    if AFTER <= len(seen) < UNTIL and (rows.diffs > 0).any():
                        keep = np.delete(np.arange(len(rows)), int((rows.diffs > 0).argmax()))
                        rows = Updates(rows.rows.take(pa.array(keep)), rows.times[keep], rows.diffs[keep])
                return rows, errors

            state.output.take = once  # type: ignore[method-assign]
            try:
                return take(state, ends)
            finally:
                state.output.take = output_take  # type: ignore[method-assign]
        return take(state, ends)

    ViewState.take = faulty  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    break_one()
    app.main()
