"""`fetchbox flows`: starting runs of flows, watching them, and opening their gates."""

from cli.flows.commands import app

__all__ = ["app"]
