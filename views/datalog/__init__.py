"""Datalog programs bound: names, strata, types, and the plan of each relation. Expressions are those of the SQL front end."""
