"""Retention: what of the lake is kept, compacted and dropped, and why."""
