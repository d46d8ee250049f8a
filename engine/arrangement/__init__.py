"""Arrangements: collections indexed once and read by many."""

from headrace.engine.arrangement.arranged import Arranged, TraceHandle
from headrace.engine.arrangement.registry import Registry, arrangement_name

__all__ = ["Arranged", "Registry", "TraceHandle", "arrangement_name"]
