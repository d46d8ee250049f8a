"""Dates, times, timestamps, intervals and time zones."""
