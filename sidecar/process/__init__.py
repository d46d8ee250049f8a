"""Where a runtime lives: one local process now."""
