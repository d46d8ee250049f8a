"""What every family rests on: the catalogue, resolution, evaluation, casts and comparison."""
