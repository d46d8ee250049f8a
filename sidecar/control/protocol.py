"""What both sides of the control channel know: the socket's name, and the error of a wrong request.

Invariant: it loads nothing else, so that a command that only asks a running sidecar starts at once.
"""

from __future__ import annotations

from headrace.engine.errors import HeadraceError

SOCKET = "control.sock"
"""The socket's name in the state folder."""


class ControlError(HeadraceError):
    """What was asked of a running sidecar is not understood, or nobody answers."""

    code = "control"
