"""`fetchbox demo`: the whole platform, seen at work and proved, in under a minute."""
