"""Flows: timeline, projections, reducers, gates and orchestration (seed 003)."""
