"""A process: its duties, which start and stop together, and what it stands on (Redis, the object store)."""
