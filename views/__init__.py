"""Views: from a strict spec through SQL, a plan and rewrite rules to a dataflow."""
