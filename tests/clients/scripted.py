"""A gRPC server that answers exactly as a test says, for what no platform does on demand."""
# ruff: noqa: N802 - gRPC names the methods

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc

from fetchbox.operator.v1.job_pb2 import JobEvent
from fetchbox.task.v1.job_pb2 import Job
from fetchbox.task.v1.task_service_pb2 import GetJobRequest, WatchJobRequest
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceServicer, add_TaskServiceServicer_to_server

Script = Callable[[Any], Iterator[JobEvent]]
"""What one call of `WatchJob` gives; it is handed the context of the call."""


class Scripted(TaskServiceServicer):
    """Plays the next of `scripts` for each `WatchJob`; notes cursors and metadata."""

    def __init__(self, *scripts: Script, credentials: grpc.ServerCredentials | None = None) -> None:
        self._scripts = iter(scripts)
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_TaskServiceServicer_to_server(self, self._server)
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("localhost:0", credentials)
        self.status = "running"
        self.cursors: list[str] = []
        self.metadata: dict[str, str | bytes] = {}

    def WatchJob(self, request: WatchJobRequest, context: Any) -> Iterator[JobEvent]:
        self.cursors.append(request.last_event_id)
        yield from next(self._scripts)(context)

    def GetJob(self, request: GetJobRequest, context: Any) -> Job:
        self.metadata = dict(context.invocation_metadata())
        return Job(job_id=request.job_id, status=self.status)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()
