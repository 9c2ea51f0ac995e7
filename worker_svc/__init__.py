"""The worker service: slots that claim tasks, do them and settle them, and finalizers that end jobs."""
