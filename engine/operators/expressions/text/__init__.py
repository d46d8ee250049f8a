"""Text, bytes and bit strings."""
