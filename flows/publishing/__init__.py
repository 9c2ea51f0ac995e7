"""The one way to publish an event: the manager, the Internal Bus, and what connects it with the store."""
