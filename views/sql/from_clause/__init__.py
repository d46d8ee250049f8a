"""FROM: tables, joins, VALUES and functions that return sets."""
