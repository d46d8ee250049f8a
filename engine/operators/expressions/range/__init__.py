"""Ranges and multiranges."""
