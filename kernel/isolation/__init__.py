"""Handlers in child processes (`isolation = "process"`): what kills or blocks one costs its own job alone.

- `pool`: the children of a service, made ahead of need and used again.
- `waiting`: deadlines that stand still while a call waits for a child.
- `calls`: one call in a child, and what its handler asks of the service meanwhile.
- `job_handlers`: what stands in a service for the handler of a job type.
- `child` and `child_jobs`: the child's side, a program of its own that imports no more than it must.
- `frames` and `faults`: how the two talk, and how what is raised gets from one to the other.
"""
