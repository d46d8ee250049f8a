"""The Spark publisher: two snapshots of a dataset become one version of changes on Kafka, in Debezium's envelope."""
