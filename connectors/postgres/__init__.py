"""Views as tables of a Postgres database: rows and frontier in one transaction."""
