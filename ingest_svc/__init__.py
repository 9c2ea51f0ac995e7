"""The way in: a document becomes a stored manifest, a ledger entry and tasks, and only then a 202."""
