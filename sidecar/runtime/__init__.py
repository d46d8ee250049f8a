"""The loop, its parts, and recovery."""
