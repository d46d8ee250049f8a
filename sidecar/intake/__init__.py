"""What comes in: source intake, heartbeats, schema drift, upserts, connector checks."""
