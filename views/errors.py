"""The error of a view that cannot be understood, refused before anything starts.

Always: it names the view, and where a place is known the file, the line and the column of the SQL in that file.
"""

from __future__ import annotations

from headrace.engine.errors import HeadraceError


class ViewError(HeadraceError):
    """A view that is wrong or not supported: `what` is the reason, `hint` the rewrite that helps, if any."""

    code = "view"
