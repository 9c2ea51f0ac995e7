"""Commands about the lake."""
