"""What your own handlers import, and all of it: the classes to subclass, what they are given, and what they raise.

`JobHandler` is the code of a job type of fetch jobs, `TaskHandler` that of a task, `StepHandler` that of a step of a
flow. docs/handlers.md of FetchBox shows each. Names that stand here stay; whatever lies deeper in `fetchbox` may move.
"""

from fetchbox.errors.v1.errors_pb2 import Reason
from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader, ProxyHint, StorageHint, TaskAttributes
from kernel.errors import FetchboxError, Violation
from kernel.handlers import (
    DefaultHandler,
    JobHandler,
    JobSummary,
    Manifest,
    PreparedManifest,
    Resource,
    StepHandler,
    StoredObject,
    SyncTaskRun,
    TaskContext,
    TaskError,
    TaskHandler,
    TaskRun,
    TaskSettings,
    default_storage,
    merged_headers,
)
from kernel.ids import key_segment

__all__ = [
    "DefaultHandler",
    "DownloadTask",
    "FetchboxError",
    "HttpHeader",
    "JobHandler",
    "JobSummary",
    "Manifest",
    "PreparedManifest",
    "ProxyHint",
    "Reason",
    "Resource",
    "StepHandler",
    "StorageHint",
    "StoredObject",
    "SyncTaskRun",
    "TaskAttributes",
    "TaskContext",
    "TaskError",
    "TaskHandler",
    "TaskRun",
    "TaskSettings",
    "Violation",
    "default_storage",
    "key_segment",
    "merged_headers",
]
