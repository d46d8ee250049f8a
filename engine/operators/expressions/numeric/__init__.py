"""Numbers: integers, doubles and NUMERIC, their functions and templates."""
