"""Traces: a collection's history as batches that tile [minimum, upper)."""

from headrace.engine.trace.lookup import Matches
from headrace.engine.trace.spine import NotFaithful, Spine

__all__ = ["Matches", "NotFaithful", "Spine"]
