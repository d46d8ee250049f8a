"""The process that hosts the engine: configuration, intake, reclock, the one loop, checkpoints, sinks, the command."""

VERSION = "0.1.0"
