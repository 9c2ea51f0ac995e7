"""Workers of file jobs, ours and the literal loop of seed 002, for `benchmarks.lists`."""
