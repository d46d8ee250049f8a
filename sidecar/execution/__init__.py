"""The dataflow's hosts: in this process, or in worker processes."""
