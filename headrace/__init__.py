"""Headrace keeps SQL views of a live Postgres fresh, exact and ready to read.

`engine`, `views`, `connectors` and `sidecar` are links to the four folders at the top of the repository. They are imported
by this name alone: `headrace.engine`, never `engine`. Users import the public modules here, as `headrace.spark`.
"""

from headrace.sidecar import VERSION as __version__

__all__ = ["__version__"]
