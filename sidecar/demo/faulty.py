"""The sidecar with one wrong diff, on purpose: `python -m sidecar.demo.faulty run …`. The demo and its test must notice.

After a while one update of one view is counted twice on its way to the sinks; everything else is the sidecar as it is.
"""

from __future__ import annotations

from engine.batch.updates import Updates
from sidecar import cli
from sidecar.emit import ViewState

AFTER = 40
"""Changes of the chosen view that pass unharmed."""


def break_one(view: str = "payment_methods") -> None:
    """From the AFTER-th change on, take the first row of one change of `view` away."""
    take = ViewState.take
    seen: list[int] = []

    def faulty(state: ViewState) -> object:
        if state.view.name == view:
            output_take = state.output.take

            def once() -> tuple[Updates, Updates]:
                rows, errors = output_take()
                if len(rows):
                    seen.append(1)
                    if len(seen) == AFTER:
                        rows = Updates(rows.rows.slice(1), rows.times[1:], rows.diffs[1:])
                return rows, errors

            state.output.take = once  # type: ignore[method-assign]
            try:
                return take(state)
            finally:
                state.output.take = output_take  # type: ignore[method-assign]
        return take(state)

    ViewState.take = faulty  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    break_one()
    cli.main()
