"""Regular expressions, as Postgres reads and matches them."""
