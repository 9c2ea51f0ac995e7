"""A remote worker that does nothing by itself: a test says what becomes of a job, and when."""

import json
import uuid
from typing import Any, Self

import grpc
from google.protobuf.duration_pb2 import Duration

from fetchbox.worker.v1 import worker_service_pb2 as pb
from fetchbox.worker.v1.worker_service_pb2_grpc import WorkerServiceStub


class Claim:
    """One claimed task job."""

    def __init__(self, worker: "RemoteWorker", task: pb.ClaimedTask) -> None:
        self._worker = worker
        self._claim = task.claim
        self._reported = 0
        self.job_id = task.queued_task.job_id
        self.payload: Any = json.loads(task.queued_task.payload)

    def tokens(self, *texts: str) -> None:
        """Reports an event `token` for each text."""
        events = [pb.TaskEvent(type="token", data=json.dumps({"text": text}).encode()) for text in texts]
        self._worker.call(
            "ReportEvents", pb.ReportEventsRequest, claim=self._claim, first=self._first(events), events=events
        )

    def complete(self, result: Any) -> None:
        """The job is done."""
        self._worker.call("CompleteTask", pb.CompleteTaskRequest, claim=self._claim, result=json.dumps(result).encode())

    def fail(self, code: str, message: str) -> None:
        """The job fails for good, where the code is not retryable."""
        self._worker.call("FailTask", pb.FailTaskRequest, claim=self._claim, failure_code=code, failure_message=message)

    def _first(self, events: list[pb.TaskEvent]) -> int:
        first = self._reported + 1
        self._reported += len(events)
        return first


class RemoteWorker:
    """The worker; its jobs are those of the task `tool`."""

    def __init__(self, target: str, token: str) -> None:
        self._channel = grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0)])
        self._stub = WorkerServiceStub(self._channel)
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._id = f"test-{uuid.uuid4()}"

    def call(self, method: str, request: Any, **fields: Any) -> Any:
        """The answer of an RPC."""
        return getattr(self._stub, method)(request(worker_id=self._id, **fields), metadata=self._metadata, timeout=30)

    def claim(self, job_id: str) -> Claim:
        """The claim of that job, which is the only one that waits."""
        answer = self.call("ClaimTasks", pb.ClaimTasksRequest, wait=Duration(seconds=20), kinds=["tool"])
        (task,) = answer.tasks
        claim = Claim(self, task)
        assert claim.job_id == job_id
        return claim

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
