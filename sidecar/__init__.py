"""The process that hosts the engine: configuration, intake, reclock, the one loop, checkpoints, sinks, the command."""
