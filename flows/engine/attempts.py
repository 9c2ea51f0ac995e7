"""What becomes of an attempt at a step: its job is made, watched and, once it has ended, its end recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from fetchbox.errors.v1 import errors_pb2 as codes
from flows.engine.decision import Cancel, Decision, Send, Step, deadline_ms
from flows.engine.job_facts import JobFacts
from flows.model import kinds
from flows.model.course import Course, Problem, text
from flows.model.state import ended, over
from flows.model.types import FlowState, StepState
from kernel.durations import millis
from kernel.errors import failure_name, is_retryable
from kernel.queue.work.retry import spread

_LOST: Final = Problem(failure_name(codes.FAILURE_CODE_SYSTEM_JOB_LOST), "the record of the job is gone")
_PARTIAL: Final = failure_name(codes.FAILURE_CODE_DOWNLOAD_PARTIAL)
_CANCELED: Final = failure_name(codes.FAILURE_CODE_SYSTEM_CANCELED)
_DEADLINE: Final = failure_name(codes.FAILURE_CODE_SYSTEM_STEP_DEADLINE)
_UNKNOWN: Final = failure_name(codes.FAILURE_CODE_SYSTEM_INTERNAL)


def looked_at(state: FlowState, now_ms: int) -> list[StepState]:
    """The steps whose jobs are to be looked at before anything is decided at that time."""
    if ended(state):
        return [step for step in state.steps.values() if step.run_id and step.status != "completed"]
    course = Course(state, now_ms)
    return [
        step
        for step in state.steps.values()
        if step.run_id and not over(step) and (_runs(step) or _due_ms(course, step) <= now_ms)
    ]


def schedule(made: Decision, step: Step) -> None:
    """Schedules the first attempt, and has it sent."""
    run_id = made.chance.run_id()
    made.course.tell_step(kinds.STEP_SCHEDULED, step.key, stepRunId=run_id, attempt=1, queue=step.queue)
    made.sends.append(Send(step.key, run_id, 1))
    made.next(made.course.now_ms + made.settings.check_ms)


def attempt(made: Decision, step: Step, jobs: Mapping[str, JobFacts]) -> Problem | None:
    """Goes on with the present attempt; why the step failed."""
    state = made.course.step(step.key)
    job = jobs.get(state.run_id)
    if not _runs(state) and made.course.now_ms < (due_ms := _due_ms(made.course, state)):
        made.next(due_ms)
    elif job is None:  # it is due since the jobs were looked at
        made.look_again()
    elif job.status == "later":
        made.next(job.created_ms)
    elif job.status == "" and not _runs(state):
        made.sends.append(Send(step.key, state.run_id, state.number))
        made.next(made.course.now_ms + made.settings.check_ms)
    else:
        return _follow(made, step, job)
    return None


def _follow(made: Decision, step: Step, job: JobFacts) -> Problem | None:
    """Goes where the job has gone."""
    state = made.course.step(step.key)
    if job.status == "refused":
        return Problem(job.code, job.message)
    if job.status == "":
        return _failed(made, step, _LOST)
    # The fetch job has another id than the attempt; this is how the timeline learns of it.
    if not _runs(state) and (job.status != "queued" or step.spec.job_type):
        made.course.tell_step(kinds.STEP_ATTEMPT_STARTED, step.key, jobId=job.job_id)
    if job.status in ("queued", "running"):
        _watch(made, step, job)
        return None
    return _conclude(made, step, job)


def _runs(step: StepState) -> bool:
    return step.attempt == step.number and step.attempt_status == "running"


def _due_ms(course: Course, step: StepState) -> int:
    return course.at(step.scheduled_at) + step.backoff_ms


def _watch(made: Decision, step: Step, job: JobFacts) -> None:
    longest = deadline_ms(step.spec.deadline)
    ends = job.created_ms + longest
    if made.course.now_ms < ends:
        made.next(min(ends, made.course.now_ms + made.settings.check_ms))
        return
    told = f"the attempt took longer than {longest / 1000:g} s"
    run_id = made.course.step(step.key).run_id
    made.cancels.append(Cancel(run_id, job.job_id, _DEADLINE, told))
    made.look_again()


def _conclude(made: Decision, step: Step, job: JobFacts) -> Problem | None:
    """The job has ended."""
    if not step.spec.job_type:
        made.settled.append(job.job_id)
    if job.status == "done" or (job.status == "partial" and step.spec.allow_partial):
        run_id = made.course.step(step.key).run_id
        members = made.kept("result", job.result, step.key, run_id)
        made.course.tell_step(kinds.STEP_ATTEMPT_COMPLETED, step.key)
        made.course.tell_step(kinds.STEP_COMPLETED, step.key, members)
        return None
    if job.status == "partial":
        return _failed(made, step, Problem(_PARTIAL, job.message or "some resources were not stored"))
    code = job.code or (_CANCELED if job.status == "canceled" else _UNKNOWN)
    return _failed(made, step, Problem(code, job.message), job.wait_ms)


def _failed(made: Decision, step: Step, problem: Problem, wait_ms: int = 0) -> Problem | None:
    """Records a failed attempt and schedules another, if there is to be one; else that is why the step failed.

    The other comes after `wait_ms` at the earliest.
    """
    course, spec = made.course, step.spec
    course.tell_step(kinds.STEP_ATTEMPT_FAILED, step.key, {"error": problem.json})
    number = course.step(step.key).number
    if number > spec.max_retries or not is_retryable(problem.code):
        return problem
    ceiling = min(millis(spec.backoff.max), millis(spec.backoff.base) * 2 ** min(number - 1, 32))
    jittered = int(ceiling * made.chance.jitter())
    backoff = max(jittered, int(spread(wait_ms / 1000, made.chance.jitter()) * 1000))
    members = {"reason": text(problem.code), "backoffMs": orjson.dumps(backoff)}
    run_id = made.chance.run_id()
    more = {"stepRunId": run_id, "attempt": number + 1, "queue": step.queue, "jobId": None}
    course.tell_step(kinds.STEP_RETRY_SCHEDULED, step.key, members, **more)
    if backoff == 0:
        made.sends.append(Send(step.key, run_id, number + 1))
    made.next(course.now_ms + (backoff or made.settings.check_ms))
    return None
