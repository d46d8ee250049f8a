"""What Spark publishes on Kafka, by version: snapshots compared, changes, streams, the feed of a Delta table."""
