"""The finish reasons of vendors that say that an answer is not whole because the endpoint failed.

Any other one ends an answer well, as far as it goes: `stop`, `length`, `content_filter`, `tool_calls`, `end_turn`.
"""

from __future__ import annotations

from typing import Final

from kernel.handlers import TaskError
from worker_svc.tasks.failures import status

_INTERNAL: Final = 500
_FAILED: Final = {
    **dict.fromkeys(("abort", "aborted", "cancel", "cancelled", "canceled", "user_cancel"), _INTERNAL),
    **dict.fromkeys(("engine_error", "failed", "failure", "internal_error", "model_error", "server_error"), _INTERNAL),
    **dict.fromkeys(
        ("exception", "internal", "interrupted", "oom", "out_of_memory", "preempted", "unknown_error"), _INTERNAL
    ),
    **dict.fromkeys(("connection_closed", "connection_error", "disconnect", "disconnected"), 502),
    **dict.fromkeys(("overloaded", "server_overloaded", "overloaded_error", "unavailable"), 503),
    **dict.fromkeys(("rate_limit", "rate_limited", "rate_limit_exceeded"), 429),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call"), _INTERNAL),  # Gemini
    "insufficient_system_resource": 503,  # DeepSeek
    "network_error": 502,  # Zhipu
    "timeout": 504,
    "timeout_error": 504,
}
_ERROR: Final = "error"


def failure_of_reason(reason: str) -> TaskError | None:
    """The failure that a finish reason tells; None for one that ends an answer well."""
    name = reason.strip().lower()
    name = name.rpartition(": ")[2] if name.startswith("function_call_filter") else name  # as Gemini tells it
    number = _FAILED.get(name, _INTERNAL if name.startswith(_ERROR) else 0)
    return status(number, f"the endpoint broke its answer off: {name}") if number else None
