"""`fetchbox flows`: starting flow runs, watching them, and opening their gates."""

from cli.flows.commands import app

__all__ = ["app"]
