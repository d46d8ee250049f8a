"""JSON and jsonb, and the SQL/JSON path language."""
