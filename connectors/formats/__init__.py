"""Envelopes: pure functions from the bytes of messages to changes and marks. No transport in here."""
