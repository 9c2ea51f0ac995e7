"""The finish reasons of vendors that say that an answer is not whole because the endpoint failed.

Any other one ends an answer well, as far as it goes: `stop`, `length`, `content_filter`, `tool_calls`, `end_turn`.
"""

from __future__ import annotations

import re
from typing import Final

from kernel.handlers import TaskError
from worker_svc.tasks.failures import status
from worker_svc.tasks.refusal import Words

_INTERNAL: Final = 500
_WORDS: Final = (
    (429, "rate_limit"),
    (503, "overload|unavailable|shut_?down|insufficient_system_resource"),
    (504, "time_?out|timed_out|deadline"),
    (502, "connection|disconnect|network|lost"),
    (_INTERNAL, "error|exception|fail|fault|internal|abort|cancel|interrupt|preempt|kill|died|crash|oom|out_of_memory"),
    (_INTERNAL, "incomplete|malformed|unexpected_tool_call|too_many_tool_calls|other$"),  # Gemini's, but the first
)
"""The status that a failure has by the beginning of a word in its name. The first one that is found holds."""
_FAILED: Final = tuple((number, re.compile(f"(?:^|_)(?:{words})")) for number, words in _WORDS)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_LETTERS: Final = re.compile(r"[^a-z]+")
_LONGEST: Final = 200
"""Letters of a name that are looked at, and shown."""


def failure_of_reason(reason: str, fit: Words) -> TaskError | None:
    """The failure that a finish reason tells, in words that are `fit` to be shown; None for one that ends well."""
    name = reason.strip()
    words = _NO_LETTERS.sub("_", _HUMP.sub("_", name[:_LONGEST]).lower()).strip("_")
    number = next((known for known, word in _FAILED if word.search(words)), None)
    if number is None:
        return None
    shown = fit(name)
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    return status(number, f"the endpoint broke its answer off: {shown}")
