"""The incremental engine: lattice, batches, traces, arrangements, operators, dataflow.

Sans-I/O: it gets updates, frontiers and fuel, and gives updates, frontiers and counts; no sockets, files, clocks,
threads, environment or logging. The same input always gives the same output. What hosts it is outside.
"""
