"""Postgres's own answers at an exact position, by the names that the demo calls them.

Always: see `sidecar/operations/postgres_at_lsn.py`. Called by the demo and by `tests`.
"""

from headrace.connectors.lsn import lsn_number
from headrace.sidecar.operations.postgres_at_lsn import Answer, Row, answers, snapshot

__all__ = ["Answer", "Row", "answers", "lsn_number", "snapshot"]
