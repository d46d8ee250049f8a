"""The embedded stack: Postgres, Kafka and Connect with Debezium as child processes, for demo, tests and trials."""
