"""Without a running sidecar: replay of recordings and SQL scripts, tests of views."""
