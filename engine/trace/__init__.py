"""Traces: a collection's history as batches that tile [minimum, upper)."""

from engine.trace.lookup import Matches
from engine.trace.spine import NotFaithful, Spine

__all__ = ["Matches", "NotFaithful", "Spine"]
