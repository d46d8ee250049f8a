"""The state folder: file system, batch store, checkpoints, generations, spill files."""
