"""Arrangements: collections indexed once and read by many."""

from engine.arrangement.arranged import Arranged, TraceHandle
from engine.arrangement.registry import Registry, arrangement_name

__all__ = ["Arranged", "Registry", "TraceHandle", "arrangement_name"]
