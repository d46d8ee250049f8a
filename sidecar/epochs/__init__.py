"""Epochs: reclock mints them and binds source positions to them, durably."""
