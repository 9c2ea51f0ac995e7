"""The platform under torment."""

from tests.outages.platform import unruly

__all__ = ["unruly"]
