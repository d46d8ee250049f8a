"""Postgres's own answers at an exact position, by the names that the demo calls them.

Always: see `sidecar/oracle.py`. Called by the demo and by `tests`.
"""

from sidecar.oracle import Answer, Row, answers, lsn_number, snapshot

__all__ = ["Answer", "Row", "answers", "lsn_number", "snapshot"]
