"""Whole transactions out of partitions: assemblers, snapshots, truncations, suspended tables."""
