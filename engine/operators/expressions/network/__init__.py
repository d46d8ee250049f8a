"""Network and hardware addresses."""
