"""The priority lists: file jobs on Redis lists, from the producer to the list of completed ones."""
