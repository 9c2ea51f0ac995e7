"""Handlers: the code of a job type, what it sees, and how it is found and called."""

from kernel.handlers.classes import find_class, where_to_look
from kernel.handlers.error_text import describe
from kernel.handlers.handler import DefaultHandler, JobHandler, TaskContext, TaskError, default_storage, merged_headers
from kernel.handlers.handler_errors import text_for_tenants
from kernel.handlers.planning import call_hook, plan_tasks
from kernel.handlers.registry import HandlerRegistry, resolve
from kernel.handlers.task import StepHandler, SyncTaskRun, TaskHandler, TaskRun, TaskSettings
from kernel.handlers.views import JobSummary, Manifest, PreparedManifest, Resource, StoredObject, json_object

__all__ = [
    "DefaultHandler",
    "HandlerRegistry",
    "JobHandler",
    "JobSummary",
    "Manifest",
    "PreparedManifest",
    "Resource",
    "StepHandler",
    "StoredObject",
    "SyncTaskRun",
    "TaskContext",
    "TaskError",
    "TaskHandler",
    "TaskRun",
    "TaskSettings",
    "call_hook",
    "default_storage",
    "describe",
    "find_class",
    "json_object",
    "merged_headers",
    "plan_tasks",
    "resolve",
    "text_for_tenants",
    "where_to_look",
]
