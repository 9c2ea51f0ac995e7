"""What clients read of runs: projections as they are, and streams with a cursor."""
