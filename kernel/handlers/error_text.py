"""An error in words, for logs and for operators."""

from __future__ import annotations

_LETTERS = 1000
_SHOWN = 3
"""Errors of a group that are named."""


def describe(error: BaseException) -> str:
    """The error for people: its type and text, at most 1,000 characters; of a group also the first ones in it."""
    within = error.exceptions[:_SHOWN] if isinstance(error, BaseExceptionGroup) else ()
    return "; ".join(map(_line, (error, *within)))[:_LETTERS]


def _line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a text that cannot be had must not hide the error
        text = "its text cannot be had"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
