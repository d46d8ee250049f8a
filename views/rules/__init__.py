"""Rewrites of plans: one a file, each a pure function from a plan to an equal plan."""
