"""Flows as the configuration defines them, their templates, and what is wrong with them.

Whoever imports this room has its rules checked when a configuration is loaded.
"""

from flows.definitions import definition_checks as _registered  # noqa: F401
