"""The priority lists of seed 002: file jobs on Redis lists, from the producer to the list of completed ones."""
