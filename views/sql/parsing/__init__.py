"""From text to sqlglot's tree, as Postgres's grammar has it."""
