"""The views of which a recursion is evaluated between steps, and how far that has come.

Called between two turns of the loop, by what tells of the views' states.
"""

from __future__ import annotations

from headrace.sidecar.wiring.build import Running


def late_views(running: Running) -> dict[str, dict[str, int]]:
    """Of each such view: since which epoch; the round, the rows in it and the counted work of what is under way."""
    found: dict[str, dict[str, int]] = {}
    for facts in running.runtime.parts.flow.late_groups():
        now = facts.standing
        for view in facts.views:
            found[view] = {"since_epoch": now.since, "round": now.round, "rows": now.rows, "work": now.work}
    return found


__all__ = ["late_views"]
