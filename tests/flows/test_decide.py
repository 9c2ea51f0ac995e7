"""What is to happen next in a run, case by case; `test_decide_property.py` plays whole runs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Flow, FlowGate, FlowStep
from flows.engine.decide import MOST_EVENTS, ending
from flows.engine.job_facts import JobFacts
from flows.model.checks import check
from flows.model.course import Problem
from flows.model.types import Run
from tests.flows.world import BEGIN_MS, World, defined

TASK = {"task": "chat"}


def _data(world: World, kind: str) -> Any:
    return next(json.loads(event.data) for event in reversed(world.events) if event.kind == kind)


def _done(world: World, key: str, result: bytes | None = b"1") -> None:
    world.end(world.run_id(key), "done", result=result)
    world.settle()


@pytest.mark.req("R003-1.2.01")
@pytest.mark.req("R003-1.2.03")
def test_a_start_that_died_gets_its_first_event_and_goes_on_at_once() -> None:
    world = World.of(defined(a=TASK), tags=("t",), queue="jobs:stream", input=b'{"n":1}')
    world.settle()
    assert world.kinds() == ["flow.start", "step.scheduled a"]
    assert _data(world, "flow.start") == {"flowName": "f", "input": {"n": 1}}
    assert [send.step_key for send in world.sent] == ["a"]
    assert not world.wrong()


@pytest.mark.req("R003-1.2.02")
@pytest.mark.req("R003-1.2.04")
@pytest.mark.req("R003-1.2.05")
@pytest.mark.req("R003-1.2.08")
def test_steps_begin_when_what_they_need_is_completed_and_the_run_completes_with_the_last() -> None:
    flow = defined(a=TASK, b=TASK, c={"needs": ["a", "b"], **TASK})
    world = World.of(flow)
    world.settle()
    _done(world, "a")
    assert "step.scheduled c" not in world.kinds()
    _done(world, "b")
    assert world.kinds()[-1] == "step.scheduled c"
    _done(world, "c")
    assert world.state.status == "completed"
    for key in "abc":
        assert [kind for kind in world.kinds() if kind.endswith(f" {key}")] == [
            f"step.scheduled {key}",
            f"step.attempt.started {key}",
            f"step.attempt.completed {key}",
            f"step.completed {key}",
        ]
    assert sorted(world.settled) == sorted(send.run_id for send in world.sent)
    assert not world.wrong()


def test_a_job_that_runs_is_told_of_before_it_ends_once() -> None:
    world = World.of(defined(a=TASK))
    world.settle()
    world.begins(world.run_id("a"))
    world.settle()
    world.settle()
    assert world.kinds().count("step.attempt.started a") == 1
    assert world.state.steps["a"].job_id == world.run_id("a")


@pytest.mark.req("R003-1.2.06")
@pytest.mark.req("R003-1.2.07")
@pytest.mark.req("R003-1.2.09")
def test_a_failure_that_may_pass_is_tried_again_with_growing_pauses_and_then_it_is_final() -> None:
    step = {**TASK, "max_retries": 3, "backoff": {"base": "1s", "max": "3s"}}
    world = World.of(defined(a=step))
    world.settle()
    for number, pause in enumerate((1000, 2000, 3000), 1):
        world.end(world.run_id("a"), "error", code="HANDLER_ERROR", message="boom")
        made = world.settle()
        assert _data(world, "step.attempt.failed")["error"] == {"code": "HANDLER_ERROR", "message": "boom"}
        assert _data(world, "step.retry.scheduled") == {"stepKey": "a", "reason": "HANDLER_ERROR", "backoffMs": pause}
        assert made.next_ms == world.now_ms + pause
        assert len(world.sent) == number
        world.now_ms += pause
        world.settle()
        assert (world.sent[-1].run_id, world.sent[-1].number) == (world.run_id("a"), number + 1)
    world.end(world.run_id("a"), "error", code="HANDLER_ERROR", message="boom")
    world.settle()
    assert world.kinds()[-3:] == ["step.attempt.failed a", "step.failed a", "flow.failed"]
    assert _data(world, "flow.failed") == {"stepKey": "a", "error": {"code": "HANDLER_ERROR", "message": "boom"}}
    assert len({send.run_id for send in world.sent}) == 4
    assert not world.wrong()


def test_the_next_attempt_waits_as_long_as_the_last_one_was_told_to() -> None:
    world = World.of(defined(a={**TASK, "backoff": {"base": "1s", "max": "3s"}}))
    world.settle()
    world.end(world.run_id("a"), "error", code="HANDLER_HTTP_429", wait_ms=5000)
    made = world.settle()
    assert _data(world, "step.retry.scheduled")["backoffMs"] == 6250
    assert made.next_ms == world.now_ms + 6250
    assert not world.wrong()


@pytest.mark.parametrize("code", ["VALIDATION_PAYLOAD", "HANDLER_RESULT", "SYSTEM_CANCELED", "DOWNLOAD_HTTP_404"])
@pytest.mark.req("R003-1.2.09")
def test_a_failure_that_will_not_pass_is_final_at_once(code: str) -> None:
    world = World.of(defined(a=TASK))
    world.settle()
    world.end(world.run_id("a"), "error", code=code)
    world.settle()
    assert world.state.status == "failed"
    assert len(world.sent) == 1
    assert not world.wrong()


def test_a_canceled_job_fails_its_step() -> None:
    world = World.of(defined(a=TASK))
    world.settle()
    world.end(world.run_id("a"), "canceled")
    world.settle()
    assert _data(world, "step.failed")["error"]["code"] == "SYSTEM_CANCELED"
    assert world.state.status == "failed"


def test_an_attempt_that_takes_too_long_is_canceled_first_and_then_tried_again() -> None:
    world = World.of(defined(a={**TASK, "deadline": "10s", "backoff": {"base": "1s"}}))
    made = world.settle()
    assert made.next_ms == world.now_ms + 30_000  # it is not known yet when its job was made
    world.now_ms += 5
    made = world.settle()
    assert made.next_ms == BEGIN_MS + 10_000
    world.now_ms = BEGIN_MS + 10_000
    made = world.look()
    assert [cancel.code for cancel in made.cancels] == ["SYSTEM_STEP_DEADLINE"]
    assert not made.events
    world.settle()
    assert world.kinds()[-3:] == ["step.attempt.started a", "step.attempt.failed a", "step.retry.scheduled a"]
    assert _data(world, "step.attempt.failed")["error"]["code"] == "SYSTEM_STEP_DEADLINE"
    assert not world.wrong()


def test_a_job_that_is_done_before_its_cancel_for_the_deadline_counts() -> None:
    world = World.of(defined(a={**TASK, "deadline": "10s"}))
    world.settle()
    world.now_ms += 60_000
    world.record(world.decide())
    world.end(world.run_id("a"), "done", result=b"7")
    world.settle()
    assert world.state.status == "completed"


def test_a_record_that_is_gone_is_a_lost_attempt_once_the_attempt_has_begun() -> None:
    world = World.of(defined(a={**TASK, "backoff": {"base": "1s"}}))
    world.settle()
    world.jobs.clear()
    world.settle()
    assert len({send.run_id for send in world.sent}) == 1, "before it has begun it is sent again, under the same id"
    world.begins(world.run_id("a"))
    world.settle()
    world.jobs.clear()
    world.settle()
    assert _data(world, "step.attempt.failed")["error"]["code"] == "SYSTEM_JOB_LOST"
    assert world.kinds()[-1] == "step.retry.scheduled a"
    assert not world.wrong()


def test_a_definition_without_deadlines_has_long_ones() -> None:
    flow = Flow(steps={"a": FlowStep(task="chat"), "b": FlowStep(gate=FlowGate(reason="manual"))})
    world = World.of(flow)
    world.settle()
    world.now_ms += 3_600_000
    world.settle()
    assert world.kinds() == ["flow.start", "step.scheduled a", "step.await.scheduled b"]


def test_a_step_that_fails_ends_everything_else_of_the_run_in_the_same_append() -> None:
    gate = {"reason": "manual"}
    flow = defined(a={**TASK, "max_retries": 0}, b=TASK, c=TASK, d={"gate": gate}, e={"needs": ["a"], **TASK})
    world = World.of(flow)
    world.settle()
    world.begins(world.run_id("b"))
    world.settle()
    world.end(world.run_id("a"), "error", code="HANDLER_ERROR")
    made = world.look()
    assert [event.kind for event in made.events][-1] == "flow.failed"
    assert made.next_ms == world.now_ms
    assert not made.sends
    assert world.kinds()[-7:] == [
        "step.attempt.failed a",
        "step.failed a",
        "step.attempt.failed b",
        "step.failed b",
        "step.failed c",
        "step.await.cancelled d",
        "flow.failed",
    ]
    world.settle()
    assert sorted(world.stopped) == sorted((world.run_id("b"), world.run_id("c")))
    assert not world.wrong()


def test_what_is_left_of_a_run_that_was_cancelled_is_stopped_and_taken_from_the_registers() -> None:
    gate = {"reason": "webhook", "channel": "c", "key": "k"}
    world = World.of(defined(a=TASK, b={"gate": gate}))
    made = world.settle()
    assert made.waits == ["b"]
    world.publish(ending(world.state, "cancelled", world.order.hits, reason="enough"))
    assert world.kinds()[-3:] == ["step.failed a", "step.await.cancelled b", "flow.cancelled"]
    made = world.settle()
    assert (world.stopped, made.unwaits, made.next_ms) == ([world.run_id("a")], ["b"], None)
    assert not made.events
    assert not world.wrong()


@pytest.mark.req("R003-1.2.11")
@pytest.mark.req("R003-1.2.13")
def test_a_time_gate_holds_its_step_until_its_time() -> None:
    world = World.of(defined(a={**TASK, "gate": {"reason": "time", "delay": "5s"}}))
    made = world.settle()
    assert world.kinds() == ["flow.start", "step.await.scheduled a"]
    assert made.next_ms == BEGIN_MS + 5000
    assert not world.sent
    world.now_ms += 5000
    world.settle()
    assert world.kinds()[2:] == ["step.await.timeout a", "step.scheduled a"]
    assert _data(world, "step.await.timeout")["elapsedMs"] == 5000
    assert not world.wrong()


def test_a_time_of_the_past_holds_nothing_up() -> None:
    gate = {"reason": "time", "until": "${input.at}"}
    world = World.of(defined(a={"gate": gate}), input=b'{"at":"2020-01-01T00:00:00Z"}')
    world.settle()
    assert world.kinds()[1:] == [
        "step.await.scheduled a",
        "step.await.timeout a",
        "step.completed a",
        "flow.complete",
    ]
    assert not world.wrong()


@pytest.mark.req("R003-1.2.16")
def test_a_wait_ends_with_what_opened_it() -> None:
    world = World.of(defined(a={"gate": {"reason": "event", "channel": "c", "key": "${input}"}}), input=b'"k"')
    world.settle()
    assert _data(world, "step.await.scheduled") | {"until": "", "token": ""} == {
        "stepKey": "a", "reason": "event", "until": "", "channel": "c", "key": "k", "token": ""
    }  # fmt: skip
    world.hit("a", payload=b'{"big":123456789012345678901234567890}')
    made = world.look()
    assert made.clears == ["hit:a", "wait:a"]
    assert world.kinds()[-3:] == ["step.await.triggered a", "step.completed a", "flow.complete"]
    assert world.state.steps["a"].result == b'{"big":123456789012345678901234567890}'
    assert not world.wrong()


def test_what_came_before_the_gate_opens_it_as_it_is_placed() -> None:
    world = World.of(defined(a={"gate": {"reason": "manual"}}))
    world.hit("a", by="manual")
    world.settle()
    assert world.kinds()[1:4] == ["step.await.scheduled a", "step.await.triggered a", "step.completed a"]
    assert not world.wrong()


def test_what_was_delivered_goes_before_the_deadline() -> None:
    world = World.of(defined(a={"gate": {"reason": "event", "channel": "c", "deadline": "1s"}}))
    world.settle()
    world.hit("a")
    world.now_ms += 5000
    world.settle()
    assert world.state.status == "completed"


@pytest.mark.parametrize("on_timeout", ["fail", "continue"])
@pytest.mark.req("R003-1.2.18")
def test_a_deadline_fails_the_step_or_lets_it_go_on(on_timeout: str) -> None:
    gate = {"reason": "event", "channel": "c", "deadline": "1s", "on_timeout": on_timeout}
    world = World.of(defined(a={**TASK, "gate": gate}))
    world.settle()
    world.now_ms += 1000
    world.settle()
    if on_timeout == "fail":
        assert world.kinds()[-3:] == ["step.await.timeout a", "step.failed a", "flow.failed"]
        assert _data(world, "step.failed")["error"]["code"] == "SYSTEM_GATE_TIMEOUT"
    else:
        assert world.kinds()[-3:] == ["step.await.timeout a", "step.await.triggered a", "step.scheduled a"]
        assert _data(world, "step.await.triggered")["by"] == "timeout"
    assert not world.wrong()


@pytest.mark.parametrize(
    "step",
    [
        {**TASK, "gate": {"reason": "event", "channel": "c", "key": "x-${input.none}"}},
        {**TASK, "gate": {"reason": "time", "until": "${input}"}},
        {**TASK, "gate": {"reason": "time", "until": "2020-01-01"}},
    ],
    ids=["key", "nothing", "no-zone"],
)
def test_a_gate_that_cannot_be_placed_fails_its_step(step: dict[str, Any]) -> None:
    world = World.of(defined(a=step))
    world.settle()
    assert world.kinds()[-2:] == ["step.failed a", "flow.failed"]
    assert _data(world, "step.failed")["error"]["code"] == "VALIDATION_TEMPLATE"
    assert not world.wrong()


def test_an_attempt_that_cannot_be_made_fails_its_step() -> None:
    world = World.of(defined(a=TASK, b=TASK))
    world.settle()
    world.jobs[world.run_id("a")] = JobFacts("refused", code="VALIDATION_MANIFEST", message="no resources")
    world.settle()
    assert world.kinds()[-3:] == ["step.failed a", "step.failed b", "flow.failed"]
    assert _data(world, "flow.failed")["error"] == {"code": "VALIDATION_MANIFEST", "message": "no resources"}
    assert not world.wrong()


def test_a_send_that_was_put_off_costs_no_attempt() -> None:
    world = World.of(defined(a=TASK))
    world.settle()
    run_id = world.run_id("a")
    world.jobs[run_id] = JobFacts("later", created_ms=world.now_ms + 700)
    made = world.settle()
    assert (made.next_ms, made.events) == (world.now_ms + 700, [])
    del world.jobs[run_id]
    made = world.look()
    assert [send.run_id for send in made.sends] == [run_id]


@pytest.mark.req("R003-1.2.04")
def test_the_job_of_a_manifest_is_named_as_soon_as_there_is_one() -> None:
    world = World.of(defined(a={"job_type": "default"}))
    world.settle()
    run_id = world.run_id("a")
    world.jobs[run_id] = JobFacts("queued", "job-1", world.now_ms)
    world.settle()
    assert world.kinds()[-1] == "step.attempt.started a"
    assert (world.state.steps["a"].job_id, world.state.steps["a"].queue) == ("job-1", "jobs.tasks")
    world.jobs[run_id] = JobFacts("done", "job-1", world.now_ms, b'{"jobId":"job-1"}')
    world.settle()
    assert world.state.status == "completed"
    assert not world.settled, "its record is kept as that of any manifest's job"
    assert not world.wrong()


@pytest.mark.parametrize("allowed", [False, True])
def test_some_resources_are_enough_only_where_the_step_says_so(allowed: bool) -> None:
    world = World.of(defined(a={"job_type": "default", "allow_partial": allowed}))
    world.settle()
    world.jobs[world.run_id("a")] = JobFacts("partial", "job-1", world.now_ms, b'{"failed":1}', "DOWNLOAD_DNS")
    world.settle()
    if allowed:
        assert world.state.steps["a"].result == b'{"failed":1}'
    else:
        assert _data(world, "step.failed")["error"]["code"] == "DOWNLOAD_PARTIAL"
    assert not world.wrong()


@pytest.mark.req("R003-1.1.18")
@pytest.mark.req("R003-3.3.02")
def test_a_result_too_large_for_an_event_is_an_object_and_templates_see_it() -> None:
    world = World.of(defined(output=b'{"n":"${length(steps.a.result)}"}', a=TASK))
    world.settle()
    world.end(world.run_id("a"), "done", result=b'"%s"' % (b"x" * 70_000))
    world.settle()
    assert list(world.objects) == [f"flows/r/a/{world.run_id('a')}.json"]
    assert world.state.result == b'{"n":70000}'
    assert not world.wrong()


def test_what_an_event_refers_to_is_stored_first_and_loaded_for_templates() -> None:
    world = World.of(defined(output=b'{"n":"${length(steps.a.result)}"}', a=TASK, b={"needs": ["a"], **TASK}))
    world.settle()
    world.end(world.run_id("a"), "done", result=b'"%s"' % (b"x" * 70_000))
    world.look()
    key = f"flows/r/a/{world.run_id('a')}.json"
    assert world.state.steps["a"].result_key == key
    assert len(world.objects.pop(key)) == 70_002
    world.end(world.run_id("b"), "done", result=b"0")
    made = world.look()
    assert (made.loads, made.events) == ((key,), [])
    world.objects[key] = b'"%s"' % (b"x" * 70_000)
    world.settle()
    assert world.state.result == b'{"n":70000}'
    assert not world.wrong()


def test_an_output_that_cannot_be_filled_in_fails_the_run() -> None:
    world = World.of(defined(output=b'"n ${steps.a.result.none}"', a=TASK))
    world.settle()
    _done(world, "a")
    assert _data(world, "flow.failed")["error"]["code"] == "VALIDATION_TEMPLATE"
    assert not world.wrong()


@pytest.mark.parametrize("letter", ["x", "é", "\0", '"', "\ud800", "🙂"], ids=str.__repr__)
def test_whatever_an_error_says_the_run_can_tell_it_in_the_smallest_event(letter: str) -> None:
    long = "n" * 128
    world = World.of(defined(**{long: {**TASK, "max_retries": 0}}))
    world.order = replace(world.order, run=Run("i" * 128, long))
    world.settle()
    world.end(world.run_id(long), "error", code="c" * 100_000, message=letter * 100_000)
    world.settle()
    assert world.state.status == "failed"
    for event in world.events:
        event.ClearField("id")
        event.ClearField("stream")
        check(event, 8192)
    told = json.loads(world.state.error or b"")
    assert told["code"] == "c" * 128
    assert 650 < len(told["message"]) <= 4096


def test_a_payload_that_came_for_many_gates_is_copied_for_the_run() -> None:
    gate = {"reason": "event", "channel": "paid", "key": "k"}
    world = World.of(defined(output=b'"${length(gates.a.payload)}"', a={"gate": gate}))
    world.settle()
    hits = {"a": b'{"by":"event","payloadKey":"deliveries/2027-01-15/abc.json"}'}
    world.order = replace(world.order, hits=hits)
    assert world.look().loads == ("deliveries/2027-01-15/abc.json",)
    world.objects["deliveries/2027-01-15/abc.json"] = b"[1,2,3]"
    world.settle()
    assert world.objects.pop("flows/r/a/abc.json") == b"[1,2,3]"
    assert _data(world, "step.await.triggered")["payloadKey"] == "flows/r/a/abc.json"
    assert world.state.steps["a"].result_key == "flows/r/a/abc.json"
    assert world.state.result == b"3"
    assert not world.wrong()


def test_a_key_that_nobody_can_name_fails_its_step() -> None:
    gate = {"reason": "event", "channel": "paid", "key": "${input}"}
    for size, status in ((512, "running"), (513, "failed")):
        world = World.of(defined(a={"gate": gate}), input=b'"%s"' % (b"k" * size))
        world.settle()
        assert world.state.status == status
    assert _data(world, "flow.failed")["error"]["code"] == "VALIDATION_TEMPLATE"


def test_a_large_output_is_an_object() -> None:
    world = World.of(defined(output=b'"${steps.a.result}"', a=TASK))
    world.max_event_bytes = 1024
    world.settle()
    _done(world, "a", b'"%s"' % (b"x" * 300))
    assert world.state.result_key == ""
    world = World.of(defined(output=b'["${steps.a.result}","${steps.a.result}"]', a=TASK))
    world.max_event_bytes = 1024
    world.settle()
    _done(world, "a", b'"%s"' % (b"x" * 300))
    assert world.state.result_key == "flows/r/output.json"
    assert len(world.objects["flows/r/output.json"]) == 607


@pytest.mark.parametrize(
    ("steps", "told"),
    [({}, "no definition"), ({"a": {"needs": ["b"], **TASK}, "b": {"needs": ["a"], **TASK}}, "circle")],
    ids=["none", "circle"],
)
def test_a_definition_that_cannot_be_followed_ends_the_run(steps: dict[str, Any], told: str) -> None:
    world = World.of(defined(**steps))
    world.settle()
    assert told in _data(world, "flow.failed")["error"]["message"]
    assert world.state.status == "failed"


def test_much_at_once_is_recorded_in_several_appends() -> None:
    steps: dict[str, Any] = {f"s{number}": TASK for number in range(100)}
    world = World.of(defined(**steps))
    world.settle()
    for send in list(world.sent):
        world.end(send.run_id, "done", result=b"1")
    made = world.look()
    assert MOST_EVENTS <= len(made.events) <= MOST_EVENTS + 3
    world.settle()
    assert world.state.status == "completed"
    assert not world.wrong()


def test_the_error_of_an_ending_always_fits_an_event() -> None:
    world = World.of(defined(a=TASK))
    world.settle()
    events = ending(world.state, "failed", {}, step_key="a", problem=Problem("HANDLER_ERROR", "\ud800" + "x" * 100_000))
    assert all(len(event.data) < 20_000 for event in events)
