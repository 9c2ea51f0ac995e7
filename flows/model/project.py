"""What an event changes in the views of its run: the patches that are stored beside it.

A patch is the difference between the view before and the view after, so its size is that of the change. A time in it is
always that of its event, which has none before it is stored: so a time is there because of what the event did, and not
because it differs.
"""

from __future__ import annotations

from typing import Any

from fetchbox.flow.v1.event_pb2 import Event
from flows.model import kinds, values, views
from flows.model.facts import Fact, fact_of
from flows.model.patching import difference, patch
from flows.model.state import counts, folded
from flows.model.step_state import over
from flows.model.types import FlowState, Patch, StepState
from kernel.redis import keys
from kernel.redis.keys import RunKey


def project(before: FlowState, event: Event) -> tuple[FlowState, tuple[Patch, ...]]:
    """The run after `event`, and what is stored beside it. `before` stays as it is."""
    fact = fact_of(event)
    after = folded(before, fact)
    if fact.kind == kinds.LOG:
        return after, _of_log(fact, keys.run(before.tenant, fact.meta.flow_id))
    if not counts(before, fact):
        return after, ()
    patches = [_of_snapshot(before, after, fact)]
    if fact.step:
        patches.append(_of_step(_step(before, fact), after.steps[fact.step], fact.at))
    elif not before.status and after.status == "running":
        patches.append(_of_index(after, fact))
    return after, tuple(patches)


def log_patches(event: Event, run: RunKey) -> tuple[Patch, ...]:
    """What is stored beside a log line; of its run only the name matters."""
    return _of_log(fact_of(event), run)


def _of_snapshot(before: FlowState, after: FlowState, fact: Fact) -> Patch:
    fields: dict[str, Any] = {}
    given = _last(fact.at)
    if after.status != before.status:
        fields["status"] = after.status
        fields.update(difference(views.identity(before), views.identity(after)))
        given = (_started if after.status == "running" else _completed)(fact.at) + given
    if after.waiting != before.waiting:
        fields.update(difference(views.wait(before), views.wait(after)))
    if fact.step:
        changed = difference(views.outline(_step(before, fact)), views.outline(after.steps[fact.step]))
        if changed:
            fields["steps"] = {fact.step: changed}
    return patch(kinds.FLOW_SNAPSHOT_PATCH, fields, given)


def _of_step(before: StepState, after: StepState, at: str) -> Patch:
    fields = {"stepKey": after.key, **difference(views.bearing(before), views.bearing(after))}
    given = _last(at)
    if after.tries != before.tries:
        fields["triesCountDelta"] = after.tries - before.tries
        given = _started(at) + given
    if over(after) and not over(before):
        given = _completed(at) + given
    return patch(kinds.FLOW_STEP_PATCH, fields, given)


def _step(state: FlowState, fact: Fact) -> StepState:
    return state.steps.get(fact.step) or StepState(fact.step)


def _of_index(after: FlowState, fact: Fact) -> Patch:
    fields = {"id": after.flow_id, "flowName": after.flow_name}
    if after.tenant:
        fields["tenant"] = after.tenant
    if after.queue:
        fields["queue"] = after.queue
    return patch(
        kinds.FLOW_RUN_INDEXED, fields, b'"createdAt":"%s","sourceId":"%s"' % (fact.at.encode(), fact.place.encode())
    )


def _of_log(fact: Fact, run: RunKey) -> tuple[Patch, ...]:
    level = {"lastLogLevel": text} if (text := fact.text("level")) else {}
    given = _last(fact.at)
    of_run = patch(kinds.FLOW_SNAPSHOT_PATCH, {"logsCountDelta": 1, **level}, given)
    if not fact.step:
        return (of_run,)
    fields = {"stepKey": fact.step, "logsCountDelta": 1, **level}
    return of_run, patch(kinds.FLOW_STEP_PATCH, fields, given), _reference(fact, run)


def _reference(fact: Fact, run: RunKey) -> Patch:
    known = {"stepKey": fact.step, "attempt": fact.meta.attempt, "level": fact.text("level")}
    fields = {name: value for name, value in known.items() if value}
    stream = values.dump(keys.flow_timeline(run))
    given = b'"ref":{"stream":%s,"id":"%s"},"ts":"%s"' % (stream, fact.place.encode(), fact.at.encode())
    return patch(kinds.FLOW_STEP_LOG_REF, fields, given)


def _started(at: str) -> bytes:
    return b'"startedAt":"%s",' % at.encode()


def _completed(at: str) -> bytes:
    return b'"completedAt":"%s",' % at.encode()


def _last(at: str) -> bytes:
    return b'"lastEventAt":"%s"' % at.encode()
