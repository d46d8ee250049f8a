"""What the publisher refuses; see `engine.errors` for the family."""

from __future__ import annotations

from typing import ClassVar

from engine.errors import HeadraceError


class PublishError(HeadraceError):
    """A dataset that cannot be published exactly, or a topic or state folder that does not fit it; names the table."""

    code: ClassVar[str] = "publish"
