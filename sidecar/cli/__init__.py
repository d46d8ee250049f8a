"""What the command prints: tables for people, one JSON object for programs, errors with their remedy and exit code."""
