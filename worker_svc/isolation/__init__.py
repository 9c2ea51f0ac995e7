"""Handlers of tasks and of steps in child processes: `tasks` is the worker's side, `child` the child's."""
