"""The fixed names of the dataflow's operators, in fingerprints of nodes and in names of arrangements.

Invariant: a name never changes and never comes to mean something else, or checkpoints of before are not found again.
Classes may be renamed freely. Called by `fingerprint_of` and checked against all node classes by a test.
"""

from __future__ import annotations

OPERATORS = frozenset({
    "antijoin", "arrange", "arrive", "changes", "check_key", "concat", "endless", "enter", "entered", "exchange", "filter",
    "flat map", "gather", "join", "leave", "look up", "loop", "negate", "one row", "present", "project", "project arranged",
    "recursion", "reduce", "reduced", "repeat", "replicate", "set out", "sift", "standing", "table", "top", "variable",
    "window",
})  # fmt: skip
"""What `fingerprint_of` takes for its operator."""

LABELS = frozenset({
    "antijoin", "arrange", "arrive", "changes", "check_key", "concat", "constant", "count", "endless", "enter", "exchange",
    "filter", "flat map", "gather", "join", "leave", "look up", "loop", "moved", "negate", "node", "present", "project",
    "project arranged", "recursion", "reduce", "reduced", "repeat", "replicate", "set out", "sift", "top", "variable",
    "window",
})  # fmt: skip
"""The labels of node classes: the beginnings of the names of their arrangements in checkpoints."""
