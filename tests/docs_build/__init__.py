"""`make docs`: the pages that are written from what they describe, and the figures from the benchmarks' own files."""
