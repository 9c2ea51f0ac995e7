"""What benchmarks/tasks.py measures: peers, each in an environment of its own, and ours."""
