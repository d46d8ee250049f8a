"""Debezium's Postgres connector: its configuration with reasons, registration over Connect's REST, and checks."""
