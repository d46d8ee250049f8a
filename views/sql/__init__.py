"""The SQL front: text to sqlglot's tree, names and types bound, a plan out."""
