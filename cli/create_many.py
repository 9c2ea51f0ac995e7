"""`fetchbox jobs create --from`: many task jobs, a batch after the other, and a count of what failed and why."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from cli.counting import CountProgress
from cli.order_lines import Line
from cli.output import out
from fetchbox.task.v1.task_service_pb2 import CreateJobsRequest, CreateJobsResponse
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceStub

_AT_ONCE: Final = 4
_TRIES: Final = 6
_AGAIN: Final = frozenset({"RATE_LIMITED", "UNAVAILABLE"})
"""Reasons that pass: such jobs are tried again under their keys."""
_LONGEST_PAUSE: Final = 10.0
_SHOWN: Final = 5
"""Failures that are told with their lines."""
_INVALID: Final = "INVALID_PAYLOAD"


@dataclass(slots=True)
class _Sent:
    """A batch on its way."""

    lines: Sequence[Line]
    call: Any
    """The future of gRPC, which has no public type."""
    tries: int


@dataclass(slots=True)
class Creation:
    """Sends batches and counts what comes of them."""

    stub: TaskServiceStub
    progress: CountProgress
    created: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    _sent: deque[_Sent] = field(default_factory=deque)

    def run(self, batches: Iterable[Sequence[Line]]) -> None:
        """Creates all. `grpc.RpcError` where a batch has no answer after some tries, or is refused as a whole."""
        for batch in batches:
            for line in batch:
                if line.request is None:
                    self._failed(line, _INVALID, line.problem)
            self._send([line for line in batch if line.request is not None])
            while len(self._sent) >= _AT_ONCE:
                self._take()
        while self._sent:
            self._take()

    def _send(self, lines: Sequence[Line], tries: int = 1) -> None:
        if lines:
            requests = [line.request for line in lines if line.request is not None]
            self._sent.append(_Sent(lines, self.stub.CreateJobs.future(CreateJobsRequest(requests=requests)), tries))

    def _take(self) -> None:
        """Waits for the oldest batch; what may come out well another time is sent again."""
        sent = self._sent.popleft()
        try:
            answer: CreateJobsResponse = sent.call.result()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or sent.tries == _TRIES:
                raise
            time.sleep(_pause(sent.tries))
            self._send(sent.lines, sent.tries + 1)
            return
        again: list[Line] = []
        pause = 0.0
        for line, result in zip(sent.lines, answer.results, strict=True):
            if result.HasField("job"):
                self._made(line, result.job.job_id)
                continue
            reason, wait = _told(result.error)
            if reason in _AGAIN and sent.tries < _TRIES:
                again.append(line)
                pause = max(pause, min(_LONGEST_PAUSE, wait or _pause(sent.tries)))
            else:
                self._failed(line, reason, result.error.message)
        if again:
            time.sleep(pause)
            self._send(again, sent.tries + 1)
        self.progress.update(self.created, self.reasons.total(), sent.lines[-1].number)

    def _made(self, line: Line, job_id: str) -> None:
        self.created += 1
        if out.json:
            out.document({"line": line.number, "job_id": job_id})
        elif not out.terminal:
            out.line(f"{line.number}\t{job_id}")

    def _failed(self, line: Line, reason: str, problem: str) -> None:
        self.reasons[reason] += 1
        if out.json:
            out.document({"line": line.number, "reason": reason, "message": problem})
        elif self.reasons.total() <= _SHOWN:
            self.progress.note(f"line {line.number}: {reason}: {problem}")


def _pause(tries: int) -> float:
    return min(_LONGEST_PAUSE, 0.25 * (1 << tries))


def _told(status: Status) -> tuple[str, float]:
    """The reason of an error, and the seconds to wait, 0 where it says none."""
    info, retry = ErrorInfo(), RetryInfo()
    for packed in status.details:
        _ = packed.Unpack(info) or packed.Unpack(retry)
    return info.reason, retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
