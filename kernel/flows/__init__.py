"""Flows: timeline, projections, reducers, gates and orchestration."""
