"""Connectors: sources that give changes, formats that decode them, sinks that take the changes of views."""
