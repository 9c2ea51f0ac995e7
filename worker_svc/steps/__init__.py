"""Attempts at steps of flows: the handlers that steps name, and what attempts put into the timeline."""

from worker_svc.steps.logs import StepLog, StepLogs
from worker_svc.steps.payload import StepPayload
from worker_svc.steps.registry import StepHandlers

__all__ = ["StepHandlers", "StepLog", "StepLogs", "StepPayload"]
