"""Structured logs: one JSON object a line on stderr, with field names from an allow-list.

The allow-list keeps secrets and payloads out: a field that is not in `FIELDS` is an error in tests; in production it is
dropped and counted (`fetchbox_log_fields_dropped_total`). Every line has what the current work is about
(`kernel.telemetry.context`) and the ids of its span. On a terminal the same facts are coloured text.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

from kernel.rooms import inside
from kernel.telemetry import metrics
from kernel.telemetry.log_format import ConsoleFormatter, Field, JsonFormatter

FIELDS: Final = frozenset(
    """
    addr after attempt attempts bucket bytes claimed code consumer content_type count crashes deadline_ms
    delay_ms dropped duration_ms duty entry epoch error error_id event_type expired failed fence final_url flow_id
    flow_name generation grace_ms group grpc_code handler hook host http_status interval_ms job_id job_ids job_type key
    lag lane length limit method offset outcome partition partitions path pid pool port problem proxy queue reason
    released removed
    replay request_id resource_id resource_index resources retries retry_after_ms revision role rule script service
    setting settled signal size slots stack state status step stored stream task tenant timeout_ms topic
    trace_id url version waiting worker_id
    """.split()  # noqa: SIM905  # ten lines instead of ninety
)
"""Every field name that a log line may have, beside those of its frame: `ts`, `level`, `msg`, `service`, `logger`,
`namespace` and `span_id`."""

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_ROOT: Final = "fetchbox"


class ForbiddenFieldError(ValueError):
    """A log line has a field that the allow-list does not know (raised in tests only)."""


class Logger:
    """Logs events of one part of a service. Events are short constant names, such as `claim_lost`; facts are fields."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")

    def debug(self, event: str, **fields: Field) -> None:
        """For finding faults."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Field) -> None:
        """The normal course of things."""
        self._log(logging.INFO, event, fields)

    def warn(self, event: str, **fields: Field) -> None:
        """Something to look at; work goes on."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Field) -> None:
        """Something failed."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, **fields: Field) -> None:
        """Something failed that nobody expected: the error is logged with its stack."""
        self._log(logging.ERROR, event, {**fields, "error": error}, error)

    def _log(self, level: int, event: str, fields: dict[str, Field], stack: BaseException | None = None) -> None:
        if not self._logger.isEnabledFor(level):
            return
        allowed = fields if fields.keys() <= FIELDS else _allowed(fields)
        raised = (type(stack), stack, stack.__traceback__) if stack is not None else None
        # Made here: `Logger.log` looks for its caller among the frames, which no line of ours tells.
        record = logging.LogRecord(self._logger.name, level, "", 0, event, (), raised)
        record.fields = allowed
        self._logger.handle(record)


def get_logger(name: str) -> Logger:
    """The logger of one part of a service, for instance `worker.claim`."""
    return Logger(inside(name))


def configure(service: str, level: str = "info", namespace: str = "") -> None:
    """Sends every log line of the process to stderr, warnings of Python too. Again, it replaces what was configured."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleFormatter(service) if sys.stderr.isatty() else JsonFormatter(service, namespace))
    logging.captureWarnings(True)
    # No line tells its thread or process, so no record looks for them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    for old in [h for h in root.handlers if getattr(h, "fetchbox", False)]:
        root.removeHandler(old)
    handler.fetchbox = True  # type: ignore[attr-defined]  # marks our own handler among those of other libraries
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(_ROOT).setLevel(_LEVELS[level])


def _allowed(fields: dict[str, Field]) -> dict[str, Field]:
    forbidden = sorted(fields.keys() - FIELDS)
    if "PYTEST_CURRENT_TEST" in os.environ:
        raise ForbiddenFieldError(f"log fields that are not on the allow-list: {', '.join(forbidden)}")
    metrics.LOG_FIELDS_DROPPED.inc(len(forbidden))
    return {name: value for name, value in fields.items() if name in FIELDS}
