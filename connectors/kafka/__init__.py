"""Kafka as a pipe: messages in by our own positions, views out in transactions."""
