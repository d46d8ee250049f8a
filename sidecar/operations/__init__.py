"""Commands over a deployment: audit, resync, dead-letter replay, checks against Postgres."""
