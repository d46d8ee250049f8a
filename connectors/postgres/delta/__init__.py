"""An epoch's changes of a sink table: as row-by-row statements, or as columns for COPY."""
