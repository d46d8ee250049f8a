"""Operators: pure functions from updates and traces to updates."""
