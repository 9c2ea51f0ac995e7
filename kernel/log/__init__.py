"""The append-only store: streams of entries with ids that rise, and typed partitioned topics on top."""
