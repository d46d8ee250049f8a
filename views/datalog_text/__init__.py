"""The text of Datalog programs: tokens, the syntax tree and the parser. It knows nothing of tables and types."""
