"""Aggregates and GROUP BY."""
