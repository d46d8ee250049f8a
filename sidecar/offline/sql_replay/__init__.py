"""`headrace replay` of SQL scripts: statements executed on an embedded Postgres, its SELECTs answered by our views."""
