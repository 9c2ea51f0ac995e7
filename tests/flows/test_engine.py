"""The engine on a real Redis: runs go on by themselves, and what stands in the way of one holds up no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from flows.engine.due import DueSample
from flows.engine.sending import KEPT_S, Postponed
from flows.gates.deliveries import ANY, Correlation, Hit, Opens
from flows.gates.starting import Start
from flows.model.course import Problem
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import metrics
from tests.flows.engine_rig import EngineRig, define, done, failed, quick, until

TASK: dict[str, Any] = {"task": "chat"}


@pytest.fixture
def config(config: Config) -> Config:
    return quick(config)


@pytest.fixture
async def box(config: Config, resources: Resources) -> AsyncIterator[EngineRig]:
    async with EngineRig.at(config, resources) as made:
        yield made


@pytest.mark.req("R003-1.2.02")
@pytest.mark.req("R003-1.1.13")
@pytest.mark.req("R003-1.1.14")
@pytest.mark.req("R003-2.1.08")
async def test_a_run_goes_from_step_to_step_by_itself(box: EngineRig) -> None:
    define(
        box.config,
        b'{"sum":"${steps.c.result}"}',
        a={**TASK, "with": {"n": "${input.n}"}},
        b={"handler": "pkg:Double", "needs": ["a"], "with": ["${steps.a.result}"]},
        c={**TASK, "needs": ["b"], "with": {"n": "${steps.b.result}", "job": "${steps.a.jobId}"}},
    )
    async with box.engine():
        flow_id = await box.start(given={"n": 2})
        (first,) = await box.job()
        assert json.loads(first["payload"]) == {"n": 2}
        assert first["flow"] == f"{flow_id} a 1"
        await box.end(first["job_id"], done(3))
        (second,) = await box.job()
        assert second["task"] == "step"
        assert json.loads(second["payload"]) == {"flow": "f", "step": "b", "handler": "pkg:Double", "input": [3]}
        await box.end(second["job_id"], done(6))
        (third,) = await box.job()
        assert json.loads(third["payload"]) == {"n": 6, "job": first["job_id"]}
        await box.end(third["job_id"], done(7))
        state = await box.over(flow_id)
        await box.resting()
    assert state.result == b'{"sum":7}'
    assert UUID(flow_id).version == 7
    assert {json.loads(event.meta)["flowId"] for event in await box.timeline(flow_id)} == {flow_id}
    jobs = [entry["job_id"] for entry in (first, second, third)]
    assert [state.steps[key].run_id for key in "abc"] == jobs
    started = [event for event in await box.timeline(flow_id) if event.kind == "step.attempt.started"]
    metas = [json.loads(event.meta) for event in started]
    assert [(meta["stepKey"], meta["stepRunId"], meta["attempt"], meta["jobId"], meta["queue"]) for meta in metas] == [
        (key, job_id, 1, job_id, "jobs:stream") for key, job_id in zip("abc", jobs, strict=True)
    ]


async def test_the_record_of_an_attempt_is_kept_for_the_engine_and_then_as_that_of_any_task(box: EngineRig) -> None:
    define(box.config, a=TASK)
    flow_id = await box.start()
    async with box.engine():
        (entry,) = await box.job()
    await box.end(entry["job_id"], done())
    assert KEPT_S - 60 < await box.redis.ttl(keys.job(entry["job_id"])) <= KEPT_S
    async with box.engine():
        await box.over(flow_id)
        await box.resting()
    for name in (keys.job(entry["job_id"]), keys.job_events(entry["job_id"])):
        assert 0 < await box.redis.ttl(name) <= box.config.tasks.job_ttl_s
    listed = await box.redis.zscore(keys.expiring_index(), entry["job_id"])
    assert listed is not None
    assert listed < (await box.resources.redis.now_ms()) + box.config.tasks.job_ttl_s * 1000 + 1


async def test_a_job_that_runs_is_in_the_timeline_while_it_runs(box: EngineRig) -> None:
    define(box.config, a=TASK)
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.begin(entry["job_id"])
        await box.has(flow_id, "step.attempt.started a")
        assert (await box.state(flow_id)).steps["a"].status == "running"


async def test_an_attempt_that_failed_is_tried_again_under_another_id(box: EngineRig) -> None:
    define(box.config, a={**TASK, "max_retries": 1, "backoff": {"base": "0.05s", "max": "0.1s"}})
    async with box.engine():
        flow_id = await box.start()
        (first,) = await box.job()
        await box.end(first["job_id"], failed("HANDLER_ERROR"))
        (second,) = await box.job()
        assert second["flow"] == f"{flow_id} a 2"
        assert second["job_id"] != first["job_id"]
        await box.end(second["job_id"], failed("HANDLER_ERROR"))
        state = await box.over(flow_id, "failed")
    assert json.loads(state.error or b"") == {"code": "HANDLER_ERROR", "message": "boom"}


async def test_an_attempt_past_its_deadline_is_canceled_and_its_record_says_why(box: EngineRig) -> None:
    define(box.config, a={**TASK, "deadline": "0.2s", "max_retries": 0})
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.begin(entry["job_id"])
        state = await box.over(flow_id, "failed")
    record = await box.record(entry["job_id"])
    assert record["status"] == "canceled"
    assert json.loads(record["error"])["code"] == "SYSTEM_STEP_DEADLINE"
    assert json.loads(state.error or b"")["code"] == "SYSTEM_STEP_DEADLINE"


async def test_a_record_that_is_gone_fails_the_attempt(box: EngineRig) -> None:
    define(box.config, a={**TASK, "max_retries": 0})
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.begin(entry["job_id"])
        await box.has(flow_id, "step.attempt.started a")
        await box.redis.delete(keys.job(entry["job_id"]))
        state = await box.over(flow_id, "failed")
    assert json.loads(state.error or b"")["code"] == "SYSTEM_JOB_LOST"


@pytest.mark.req("R003-1.2.20")
async def test_a_cancelled_run_stops_its_jobs_and_its_gates(box: EngineRig) -> None:
    define(box.config, a=TASK, b=TASK, c={"gate": {"reason": "webhook", "channel": "pay", "key": "k"}})
    async with box.engine():
        flow_id = await box.start()
        running, waiting = await box.job(2)
        await box.begin(running["job_id"])
        await box.has(flow_id, "step.attempt.started a")
        await box.gates.cancel_flow(flow_id, "enough")
        await box.over(flow_id, "cancelled")
        await box.resting()
    for entry in (running, waiting):
        assert (await box.record(entry["job_id"]))["status"] == "canceled"
    digest = Correlation("", "webhook", "pay", "k").digest()
    assert not await box.redis.exists(keys.gate_free(digest), keys.gate_guarded(digest))


async def test_a_failed_step_stops_the_jobs_of_the_others(box: EngineRig) -> None:
    define(box.config, a={**TASK, "max_retries": 0}, b=TASK)
    async with box.engine():
        flow_id = await box.start()
        entries = {entry["flow"].split()[1]: entry["job_id"] for entry in await box.job(2)}
        await box.begin(entries["b"])
        await box.end(entries["a"], failed("HANDLER_RESULT"))
        await box.over(flow_id, "failed")
        await box.resting()
    assert (await box.record(entries["b"]))["status"] == "canceled"


async def test_a_job_that_is_made_behind_the_end_of_its_run_is_stopped_when_it_begins(box: EngineRig) -> None:
    define(box.config, a=TASK)
    flow_id = await box.start()
    async with box.engine():
        (entry,) = await box.job()
        await box.gates.cancel_flow(flow_id)
        await box.over(flow_id, "cancelled")
        await box.resting()
        # As an engine would that made the job late: it is open, and the run knows nothing of it any more.
        await box.redis.hset(keys.job(entry["job_id"]), "status", "queued")
        await box.begin(entry["job_id"])

        async def stopped() -> bool:
            return (await box.record(entry["job_id"]))["status"] == "canceled"

        await until(stopped, "the job is stopped")
        await box.resting()


@pytest.mark.req("R003-1.2.16")
async def test_gates_open_by_time_event_and_hand(box: EngineRig) -> None:
    define(
        box.config,
        a={"gate": {"reason": "time", "delay": "0.1s"}},
        b={"gate": {"reason": "event", "channel": "paid", "key": "${input}"}},
        c={"gate": {"reason": "manual"}, "needs": ["a", "b"]},
    )
    async with box.engine():
        flow_id = await box.start(given="k1")
        await box.has(flow_id, "step.await.scheduled b")
        await box.deliveries.deliver(Correlation("", "event", "paid", "k1"), Hit("event", b"[1]"), Opens(ANY))
        await box.has(flow_id, "step.await.scheduled c")
        await box.gates.trigger(flow_id, "c", Hit("manual", b'"yes"'))
        state = await box.over(flow_id)
        await box.resting()
    assert [state.steps[key].result for key in "abc"] == [None, b"[1]", b'"yes"']


async def test_what_came_before_its_gate_opens_it(box: EngineRig) -> None:
    define(box.config, a=TASK, b={"gate": {"reason": "event", "channel": "paid", "key": "k"}, "needs": ["a"]})
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.deliveries.deliver(Correlation("", "event", "paid", "k"), Hit("event", b"[2]"), Opens(ANY))
        await box.end(entry["job_id"], done())
        state = await box.over(flow_id)
    assert state.steps["b"].result == b"[2]"


async def test_a_secret_of_a_gate_is_made_where_a_template_mentions_it(box: EngineRig) -> None:
    gate = {"reason": "webhook", "channel": "pay", "key": "k"}
    asks = {**TASK, "with": {"secret": "${gates.b.secret}"}}
    define(box.config, a=asks, b={"gate": gate, "needs": ["a"]})
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        secret = json.loads(entry["payload"])["secret"]
        found = (await box.journal.load({flow_id: "0-0"}))[flow_id][0]
        assert secret.startswith(f"{flow_id}.b.")
        assert len(found.secrets["b"]) == 2
        await box.end(entry["job_id"], done())
        await box.has(flow_id, "step.await.scheduled b")


async def test_a_manifest_with_a_secret_is_the_same_whenever_it_is_submitted(box: EngineRig) -> None:
    gate = {"reason": "webhook", "channel": "pay", "key": "k"}
    asks = {"job_type": "default", "with": {"metadata": {"secret": "${gates.b.secret}"}}}
    define(box.config, a=asks, b={"gate": gate, "needs": ["a"]})
    told = iter([Postponed("the outcome is open", 0.05), Postponed("the outcome is open", 0.05)])
    box.ingest.answer = lambda _: next(told, None)
    async with box.engine():
        flow_id = await box.start()
        await box.has(flow_id, "step.attempt.started a")
    assert len(box.ingest.asked) == 3
    assert len({manifest.document for manifest in box.ingest.asked}) == 1
    assert flow_id in json.loads(box.ingest.asked[0].document)["metadata"]["secret"]


async def test_a_full_backlog_puts_a_send_off_and_costs_no_attempt(box: EngineRig) -> None:
    box.config.tasks.max_backlog = 1
    define(box.config, a={**TASK, "max_retries": 0})
    async with box.engine():
        first = await box.start()
        (entry,) = await box.job()
        second = await box.start()
        await box.has(second, "step.scheduled a")
        await box.end(entry["job_id"], done())
        await box.over(first)
        assert not await box.queued()
        await box.redis.xtrim(keys.QUEUE, maxlen=0)
        (entry,) = await box.job()
        assert entry["flow"] == f"{second} a 1"
        await box.end(entry["job_id"], done())
        await box.over(second)


@pytest.mark.req("R003-1.1.15")
async def test_a_manifest_is_submitted_under_the_id_of_its_attempt(box: EngineRig) -> None:
    define(box.config, a={"job_type": "default", "with": {"resources": [{"id": "${input}"}]}})
    async with box.engine():
        flow_id = await box.start(given="r1", tenant="t1")
        await box.has(flow_id, "step.attempt.started a")
        state = await box.state(flow_id)
    (manifest,) = box.ingest.asked
    assert json.loads(manifest.document) == {"resources": [{"id": "r1"}]}
    assert (manifest.job_type, manifest.tenant) == ("default", "t1")
    assert manifest.idempotency_key == state.steps["a"].run_id
    assert (state.steps["a"].job_id, state.steps["a"].queue) == ("job-0", "jobs.tasks")


async def test_ingest_that_does_not_answer_holds_up_nobody_else_and_costs_no_attempt(box: EngineRig) -> None:
    fetch = {"job_type": "default", "max_retries": 0}
    define(box.config, a=fetch, b={"needs": ["a"], **TASK})
    box.config.flow_engine.batch = 2
    box.ingest.waits.clear()
    async with box.engine():
        held = await box.start()

        async def asked() -> bool:
            return bool(box.ingest.asked)

        await until(asked, "ingest is asked")
        define(box.config, a=TASK)
        other = await box.start()
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        await box.over(other)
        told = iter([Postponed("away", 0.1), Postponed("away")])
        box.ingest.answer = lambda _: next(told, None)
        box.ingest.waits.set()
        await box.has(held, "step.attempt.started a")
    assert len({manifest.idempotency_key for manifest in box.ingest.asked}) == 1
    assert len(box.ingest.asked) >= 3


async def test_a_manifest_that_ingest_refuses_fails_its_step(box: EngineRig) -> None:
    define(box.config, a={"job_type": "default", "max_retries": 5})
    box.ingest.answer = lambda _: Problem("VALIDATION_MANIFEST", "no resources")
    async with box.engine():
        flow_id = await box.start()
        state = await box.over(flow_id, "failed")
    assert json.loads(state.error or b"") == {"code": "VALIDATION_MANIFEST", "message": "no resources"}
    assert len(box.ingest.asked) == 1


@pytest.mark.parametrize("given", [None, {"n": "x" * 300_000}], ids=["nothing", "too-much"])
async def test_a_payload_that_cannot_be_made_fails_its_step(box: EngineRig, given: Any) -> None:
    text = "${input.n} ${input.n}" if given is None else "${steps.b.result.n}"
    define(box.config, b=TASK, a={**TASK, "needs": ["b"], "with": {"n": text}})
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.end(entry["job_id"], done(given))
        state = await box.over(flow_id, "failed")
    assert json.loads(state.error or b"")["code"] == "VALIDATION_TEMPLATE"


@pytest.mark.req("R003-1.1.18")
@pytest.mark.req("R003-3.3.02")
async def test_a_large_result_is_an_object_that_later_steps_see(box: EngineRig) -> None:
    define(
        box.config,
        b'"${steps.a.result}"',
        a=TASK,
        b={**TASK, "needs": ["a"], "with": {"n": "${length(steps.a.result)}"}},
    )
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.end(entry["job_id"], done("x" * 100_000))
        (second,) = await box.job()
        assert json.loads(second["payload"]) == {"n": 100_000}
        await box.end(second["job_id"], done())
        state = await box.over(flow_id)
    objects = box.resources.objects
    assert state.steps["a"].result_key == f"flows/{flow_id}/a/{entry['job_id']}.json"
    for key in (state.steps["a"].result_key, state.result_key):
        assert await objects.get(objects.bucket, key) == b'"' + b"x" * 100_000 + b'"'


async def test_a_large_result_of_the_last_step_is_in_the_output(box: EngineRig) -> None:
    define(box.config, b'{"n":"${length(steps.b.result)}"}', a=TASK, b={**TASK, "needs": ["a"]})
    async with box.engine():
        flow_id = await box.start()
        for size in (70_000, 80_000):
            (entry,) = await box.job()
            await box.end(entry["job_id"], done("x" * size))
        state = await box.over(flow_id)
    assert state.result == b'{"n":80000}'


async def test_the_job_of_an_attempt_is_its_tenants(box: EngineRig) -> None:
    define(box.config, a=TASK, b={"handler": "pkg:Handler"})
    async with box.engine():
        await box.start(tenant="t1")
        for entry in await box.job(2):
            assert (await box.record(entry["job_id"]))["tenant"] == "t1"


async def test_a_gate_that_cannot_be_registered_holds_up_no_other_run(box: EngineRig) -> None:
    define(box.config, a={"gate": {"reason": "event", "channel": "paid", "key": "${input}"}})
    bad = Correlation("", "event", "paid", "bad")
    await box.redis.set(keys.gate_free(bad.digest()), "somebody else's")
    faults = metrics.FLOW_FAULTS._value.get()
    await box.start("bad", given="bad")
    await box.start("good", given="good")
    async with box.engine():

        async def waits() -> bool:
            return bool(await box.redis.hexists(keys.flow("good"), "wait:a"))

        await until(waits, "the gate of the other run is registered")
        await box.deliveries.deliver(Correlation("", "event", "paid", "good"), Hit("event"), Opens(ANY))
        await box.over("good")
        assert metrics.FLOW_FAULTS._value.get() > faults
        await box.redis.delete(keys.gate_free(bad.digest()))
        await box.deliveries.deliver(bad, Hit("event"), Opens(ANY))
        await box.over("bad")


async def test_runs_go_on_where_nothing_can_ring_for_them(box: EngineRig) -> None:
    define(box.config, a=TASK, b={"needs": ["a"], "gate": {"reason": "manual"}})
    await box.redis.set(keys.FLOWS_WAKE, "somebody else's")
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        await box.gates.trigger(flow_id, "b", Hit("manual"))
        await box.over(flow_id)


async def test_a_start_that_died_before_its_first_event_is_finished(box: EngineRig) -> None:
    define(box.config, a=TASK)
    proposed, _ = box.starter._proposed(Start("f", flow_id="half"))
    await box.journal.open(proposed.run, proposed.digest, proposed.fields())
    async with box.engine():
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        await box.over("half")


async def test_a_run_that_cannot_be_read_or_decided_of_is_told_of_and_holds_up_no_other(box: EngineRig) -> None:
    define(box.config, a={"gate": {"reason": "manual"}})
    bad = [await box.start(), await box.start()]
    await box.redis.hset(keys.flow(bad[0]), "definition", b"\xff\xff")
    await box.redis.hset(keys.flow(bad[1]), "hit:a", b"no json")
    before = metrics.FLOW_FAULTS._value.get()
    define(box.config, a=TASK)
    async with box.engine():
        good = await box.start()
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        await box.over(good)

        async def told() -> bool:
            return bool(metrics.FLOW_FAULTS._value.get() >= before + 4)

        await until(told, "both are told of, and tried again")
        await box.redis.hdel(keys.flow(bad[1]), "hit:a")
        await box.gates.trigger(bad[1], "a", Hit("manual"))
        await box.over(bad[1])
    assert await box.redis.zscore(keys.FLOWS_DUE, bad[0]) is not None, "it is tried again"


async def test_a_run_that_is_signalled_while_it_is_looked_at_is_looked_at_again(box: EngineRig) -> None:
    """With `check_interval` and leases out of reach, only signals move it on."""
    box.config.flow_engine.check_interval.FromSeconds(3600)
    box.config.flow_engine.lease.FromSeconds(3600)
    steps: dict[str, Any] = {f"s{number}": TASK for number in range(5)}
    define(box.config, **steps)
    flow_ids = [await box.start() for _ in range(6)]
    async with box.engine(), box.engine(), box.worker(lambda _: done()):
        await asyncio.gather(*(box.over(flow_id) for flow_id in flow_ids))
        await box.resting()


async def test_engines_share_the_runs_and_no_step_is_done_twice(box: EngineRig) -> None:
    define(
        box.config,
        a=TASK,
        b={**TASK, "needs": ["a"]},
        c={**TASK, "needs": ["a"]},
        d={**TASK, "needs": ["b", "c"]},
    )
    jobs: list[str] = []

    def run(entry: dict[str, str]) -> tuple[str, bytes] | None:
        jobs.append(entry["flow"])
        return done(len(jobs))

    async with box.engine(), box.engine(), box.engine(), box.worker(run):
        flow_ids = [await box.start() for _ in range(25)]
        await asyncio.gather(*(box.over(flow_id) for flow_id in flow_ids))
    assert sorted(jobs) == sorted(f"{flow_id} {key} 1" for flow_id in flow_ids for key in "abcd")


async def test_an_engine_that_drains_leaves_its_runs_to_others_at_once(box: EngineRig) -> None:
    box.config.flow_engine.lease.FromSeconds(3600)
    box.ingest.waits.clear()
    define(box.config, a={"job_type": "default"})
    async with box.engine() as engine:
        flow_id = await box.start()

        async def asked() -> bool:
            return bool(box.ingest.asked)

        await until(asked, "ingest is asked")
        await engine.drain(0.1)
        await engine.stop()
    box.ingest.waits.set()
    async with box.engine():
        await box.has(flow_id, "step.attempt.started a")


async def test_a_run_that_retention_has_removed_is_forgotten(box: EngineRig) -> None:
    await box.redis.zadd(keys.FLOWS_DUE, {"gone": 1})
    async with box.engine():
        await box.resting()


@pytest.fixture
def own_server(config: Config, tmp_path: Path) -> Iterator[Valkey]:
    """A server of this test alone, which it may kill."""
    server = Valkey(tmp_path)
    server.start()
    config.redis.addr = server.addr
    yield server
    server.stop()


async def test_an_outage_of_redis_only_takes_its_time(config: Config, own_server: Valkey) -> None:
    define(config, a=TASK, b={**TASK, "needs": ["a"]})
    opened = await Resources.open(config)
    async with EngineRig.at(config, opened) as box, box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        own_server.kill9()
        own_server.restart()
        await box.end(entry["job_id"], done())
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        await box.over(flow_id)
    await opened.close()


async def test_what_becomes_of_runs_and_steps_is_counted(box: EngineRig) -> None:
    define(box.config, a=TASK, b={**TASK, "needs": ["a"], "max_retries": 1, "backoff": {"base": "0.01s"}})
    metrics.configure([], flows=["f"])

    def counted() -> list[float]:
        steps = [metrics.FLOW_STEPS.labels("f", outcome) for outcome in ("completed", "failed", "retried")]
        ends = [metrics.FLOWS_ENDED.labels("f", status) for status in ("completed", "failed")]
        return [series._value.get() for series in (*steps, *ends, metrics.FLOW_TRANSITIONS)]

    before = counted()
    async with box.engine():
        flow_id = await box.start()
        (entry,) = await box.job()
        await box.end(entry["job_id"], done())
        for _ in range(2):
            (entry,) = await box.job()
            await box.end(entry["job_id"], failed("HANDLER_ERROR"))
        await box.over(flow_id, "failed")
        await box.resting()
    gained = [now - then for now, then in zip(counted(), before, strict=True)]
    assert gained == [1, 1, 1, 0, 1, len(await box.timeline(flow_id)) - 1], "the first event is its starter's"
    metrics.configure([])


async def test_what_waits_for_engines_is_measured(box: EngineRig) -> None:
    now = await box.resources.redis.now_ms()
    await box.redis.zadd(keys.FLOWS_DUE, {"a": now - 90_000, "b": now - 5, "c": now + 60_000})
    await DueSample(box.resources.redis).measure()
    assert metrics.FLOWS_DUE._value.get() == 2
    assert 90 <= metrics.FLOW_DUE_LAG._value.get() < 150
    await box.redis.delete(keys.FLOWS_DUE)
    await DueSample(box.resources.redis).measure()
    assert (metrics.FLOWS_DUE._value.get(), metrics.FLOW_DUE_LAG._value.get()) == (0, 0)
