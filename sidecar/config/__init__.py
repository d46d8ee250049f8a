"""headrace.yaml, read strictly."""
