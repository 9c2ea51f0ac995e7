"""What a run is: kinds of events, the fold of its timeline, and what its projections come to. Pure functions."""
