"""Recursion by state: each row of a recursive group once, with its round and its count, kept by Bootstrap and Update."""
