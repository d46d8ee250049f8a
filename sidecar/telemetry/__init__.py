"""Metrics, the latency trace, the memory budget, and HTTP."""
