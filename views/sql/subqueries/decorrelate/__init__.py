"""A subquery that reads the query around it, turned into a join."""
