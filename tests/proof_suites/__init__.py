"""Public suites of others, read from where they lie and never copied here: what is equal, refused by name, or different."""
