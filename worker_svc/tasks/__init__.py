"""Handlers of task jobs: those that ship, and how those of one's own are found. `TaskHandlers` is the door."""

from worker_svc.tasks.registry import TaskHandlers

__all__ = ["TaskHandlers"]
