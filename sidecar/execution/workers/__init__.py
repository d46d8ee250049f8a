"""Workers: one dataflow as several processes, each with the engine unchanged inside and a shard of every collection."""
