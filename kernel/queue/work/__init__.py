"""What every kind of work shares: a claim, its outcome, the retry rule, the heartbeat, and suspects that run alone."""
