"""Subqueries in expressions, and their decorrelation."""
