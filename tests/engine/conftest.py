"""Settings of the engine's property tests: no deadline an example, as a first call may load a kernel."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("engine", deadline=None)
settings.load_profile("engine")
