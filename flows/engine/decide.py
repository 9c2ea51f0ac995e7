"""What is to happen next in a run: one pure function of its order, its timeline and the jobs of its open attempts.

A step's story: once all that it needs is completed, its gate is placed, if it has one, and settled; then its first
attempt is scheduled and sent, or, if it is a wait, it is completed. When the attempt's job has ended, the step is
completed, or another attempt is scheduled, or the step fails and the run with it. Steps are looked at in the order of
their needs, so that one decision goes as far as it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fetchbox.config.v1.config_pb2 import Flow
from fetchbox.errors.v1 import errors_pb2 as codes
from flows.definitions.definition import order_of_steps
from flows.engine.attempts import attempt, schedule
from flows.engine.decision import Cancel, Chance, Decision, DecisionSettings, Step
from flows.engine.gating import complete_wait, place, settle
from flows.engine.job_facts import ENDED, JobFacts
from flows.engine.knowledge import Knowledge, UnloadedError
from flows.gates.deliveries import settled
from flows.gates.ending import end, ending
from flows.gates.starting import first_event
from flows.model import kinds
from flows.model.course import Course, Problem
from flows.model.order import Order
from flows.model.state import ended, over, released
from flows.model.types import FlowState
from kernel.errors import failure_name

__all__ = ["Cancel", "Chance", "Decision", "Problem", "decide", "ending"]

_BROKEN: Final = failure_name(codes.FAILURE_CODE_SYSTEM_INTERNAL)
MOST_EVENTS: Final = 100
"""Events after which a decision looks at no further step: the rest follows at once, in an append of its own."""


def decide(
    order: Order,
    state: FlowState,
    jobs: Mapping[str, JobFacts],
    now_ms: int,
    settings: DecisionSettings,
    chance: Chance,
    objects: Mapping[str, bytes],
) -> Decision:
    """Decides. `jobs`: by stepRunId, those of the open attempts that were looked at; `objects`: what was loaded so far.

    `Decision.loads` names what is missing of the objects; then nothing else is decided.
    """
    course = Course(state, now_ms)
    if not state.status:
        course.add(first_event(order))
    stores: dict[str, bytes] = {}
    # A step that is completed here may have a result that what follows here speaks of.
    known = Knowledge(order, course, objects, stores)
    made = Decision(course, known, settings, chance, stores=stores)
    if ended(state):
        _leave(made, jobs)
        return made
    try:
        _go_on(made, order.definition, jobs)
    except UnloadedError as missing:
        return Decision(Course(state, now_ms), known, settings, chance, loads=missing.keys)
    if made.ends and course.state.status != "completed":
        _drop_plans(made)
    return made


def _go_on(made: Decision, flow: Flow, jobs: Mapping[str, JobFacts]) -> None:
    try:
        keys = order_of_steps(flow)
    except ValueError as error:
        end(
            made.course,
            "failed",
            made.known.order.hits,
            problem=Problem(_BROKEN, f"the definition of the run cannot be followed: {error}"),
        )
        return
    if not keys:
        end(made.course, "failed", made.known.order.hits, problem=Problem(_BROKEN, "the run has no definition"))
        return
    for key in keys:
        if len(made.events) >= MOST_EVENTS:
            made.look_again()
            return
        if made.course.step(key).status == "completed":
            continue
        step = Step(key, flow.steps[key])
        if _is_free(made.course, step):
            problem = _advance(made, step, jobs)
            if problem is not None:
                end(made.course, "failed", made.known.order.hits, step_key=key, problem=problem)
                return
    if all(made.course.step(key).status == "completed" for key in flow.steps):
        _complete(made, flow)


def _is_free(course: Course, step: Step) -> bool:
    return all(course.step(need).status == "completed" for need in step.spec.needs)


def _advance(made: Decision, step: Step, jobs: Mapping[str, JobFacts]) -> Problem | None:
    """Moves one step on as far as it goes; why it failed."""
    if over(made.course.step(step.key)):  # whoever recorded that did not end the run with it
        return Problem(_BROKEN, "the step failed")
    if made.course.step(step.key).run_id:
        return attempt(made, step, jobs)
    if step.spec.HasField("gate"):
        problem = None
        if made.course.step(step.key).gate is None:
            problem = place(made, step)
        problem = problem or settle(made, step)
        gate = made.course.step(step.key).gate
        if problem is not None or gate is None or not released(gate):
            return problem
    if step.is_wait:
        complete_wait(made, step)
    else:
        schedule(made, step)
    return None


def _complete(made: Decision, flow: Flow) -> None:
    """Every step is completed."""
    members: dict[str, bytes | None] = {}
    if flow.output:
        rendered = made.known.render(flow.output)
        if isinstance(rendered, Problem):
            end(made.course, "failed", made.known.order.hits, problem=rendered)
            return
        members = made.kept("result", rendered, "output")
    made.course.tell(kinds.FLOW_COMPLETE, members)


def _drop_plans(made: Decision) -> None:
    """The run ends with this decision: nothing else of it is to be done, and what still runs is to be stopped next."""
    made.sends, made.waits, made.cancels = [], [], []
    order = made.known.order
    made.clears = [field for key in {**order.hits, **order.waits} for field in settled(key)]
    made.next_ms = made.course.now_ms


def _leave(made: Decision, jobs: Mapping[str, JobFacts]) -> None:
    """After the end: what still runs is stopped, and what still waits is taken from where it waits."""
    defined = made.known.order.definition.steps
    for key, step in made.course.state.steps.items():
        job = jobs.get(step.run_id)
        if step.status == "completed" or job is None:
            pass
        elif job.status in ("queued", "running"):
            made.stops.append(job.job_id)
        elif job.status == "later":  # ingest is about to make it
            made.next(made.course.now_ms + made.settings.check_ms)
        elif job.status in ENDED and key in defined and not defined[key].job_type:
            made.settled.append(job.job_id)
        gate = step.gate
        if gate is not None and gate.channel:
            made.unwaits.append(key)
