"""What goes out: a writer for each sink, its backlog, the state of each view."""
