"""Watching a task: its tokens go to stdout as they come, all else that happens is told on stderr."""

import json
import sys
from collections.abc import Callable
from typing import Any

import typer

from cli.follow import follow_events, leaving
from cli.output import as_dict, out
from cli.problems import SOME_FAILED, CommandError
from cli.progress import TaskProgress
from fetchbox.operator.v1.job_pb2 import JobEvent
from fetchbox.task.v1.job_pb2 import Job
from fetchbox.task.v1.task_service_pb2 import GetJobRequest, WatchJobRequest
from fetchbox.task.v1.task_service_pb2_grpc import TaskServiceStub

ENDED = frozenset({"done", "error", "canceled"})
_SILENT = frozenset({"hello", "queued", "done", "error", "canceled"})
"""Events that need no word: the end is told from the record."""
_HINTS = {
    "HANDLER_CONNECTION": "Is the endpoint of [tasks.{task}] running?",
    "HANDLER_HTTP_401": "Is the api_key of [tasks.{task}] right?",
    "HANDLER_HTTP_403": "Is the api_key of [tasks.{task}] right?",
    "HANDLER_HTTP_404": "Are endpoint and model of [tasks.{task}] right?",
    "HANDLER_UNKNOWN": "Does the worker have the same [tasks.{task}] as ingest?",
    "VALIDATION_PAYLOAD": "Create it again with a payload that its handler takes.",
}


def watch_task(stub: TaskServiceStub, job_id: str) -> None:
    """Shows the events of a task from the first on, then its result unless its tokens were that.

    Raises a CommandError where it was not done; with `--json` it exits with 1, since the last document tells why.
    """
    if out.json:
        with leaving(job_id):
            job = _follow(stub, job_id, _print)
        out.document(as_dict(job))
        if job.status != "done":
            raise typer.Exit(SOME_FAILED)
        return
    with leaving(job_id), _View() as view:
        job = _follow(stub, job_id, view.told)
    if job.status != "done":
        raise _unfinished(job)
    if not view.has_text:
        out.line(job.result.decode() or "null")


def _follow(stub: TaskServiceStub, job_id: str, told: Callable[[JobEvent], None]) -> Job:
    return follow_events(
        lambda: stub.GetJob(GetJobRequest(job_id=job_id)),
        lambda cursor: stub.WatchJob(WatchJobRequest(job_id=job_id, last_event_id=cursor)),
        lambda job: job.status in ENDED,
        told,
    )


def _print(event: JobEvent) -> None:
    if event.type != "hello":  # it tells of the stream, not of the job
        out.document(as_dict(event))


def task_facts(job: Job) -> dict[str, object]:
    """What is worth knowing of a task, by name."""
    code, message = _error(job)
    return {
        "job": job.job_id,
        "task": job.task,
        "status": job.status,
        "tenant": job.tenant,
        "flow": job.flow,
        "took": f"{(job.updated_ts - job.created_ts) / 1000:.1f} s",
        "kept": f"{job.ttl_s} s after its end" if job.ttl_s else "",
        "result": job.result.decode(),
        "error": f"{code} {message}".strip(),
        "trace": job.trace_id,
    }


class _View:
    """What people see while a task runs."""

    def __init__(self) -> None:
        self.has_text = False
        """Whether tokens of the attempt that counts are on stdout."""
        self._at_line_start = True
        self._progress = TaskProgress()

    def __enter__(self) -> "_View":
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._end_line()

    def told(self, event: JobEvent) -> None:
        """Shows one event."""
        data = json.loads(event.data or b"null")
        facts = data if isinstance(data, dict) else {}
        if event.type == "token" and isinstance(facts.get("text"), str):
            self._token(facts["text"])
        elif event.type == "progress" and not self.has_text and self._progress.update(facts):
            pass  # the bar says it
        elif event.type in {"running", "gap"}:
            self._starts_anew(event.type)
        elif event.type == "log":
            message = facts.pop("message", "")
            self._note(f"{message} {_pairs(facts)}".strip() if isinstance(data, dict) else json.dumps(data))
        elif event.type not in _SILENT:
            self._note(f"{event.type}: {_pairs(facts) if facts else json.dumps(data, ensure_ascii=False)}")

    def _token(self, text: str) -> None:
        self._progress.stop()
        out.text(text)
        self.has_text = True
        self._at_line_start = text.endswith("\n") if text else self._at_line_start

    def _starts_anew(self, why: str) -> None:
        if self.has_text:
            self.has_text = False
            self._note(
                "events were lost; the text starts anew" if why == "gap" else "another attempt: the text starts anew"
            )

    def _note(self, text: str) -> None:
        self._end_line()
        self._progress.stop()
        out.note(text, "dim")

    def _end_line(self) -> None:
        """Stdout and stderr share a terminal's line; a file gets the text and nothing else."""
        if not self._at_line_start and sys.stdout.isatty():
            out.line()
        self._at_line_start = True


def _pairs(facts: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in facts.items()
    )


def _unfinished(job: Job) -> CommandError:
    """How a task ended that was not done, and what to do next."""
    if job.status == "canceled":
        return CommandError("the job was canceled", SOME_FAILED, hint="Create it again if it is still wanted.")
    code, message = _error(job)
    hint = _HINTS.get(code, "`fetchbox jobs logs {job}` says more.").format(task=job.task, job=job.job_id)
    if code != "VALIDATION_PAYLOAD":
        hint = f"{hint} `fetchbox dlq replay --job {job.job_id}` tries it again."
    return CommandError(message or "the task failed", SOME_FAILED, code, hint)


def _error(job: Job) -> tuple[str, str]:
    """Code and message of a failure; a worker of others may have written any JSON."""
    value = json.loads(job.error or b"null")
    if value is None:
        return "", ""
    if isinstance(value, dict) and ("code" in value or "message" in value):
        return str(value.get("code") or ""), str(value.get("message") or "")
    return "", value if isinstance(value, str) else job.error.decode()
