"""The bucket of the configuration changes between two starts: what was accepted before keeps its places."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from flows.gates.payloads import Payloads
from flows.journal.keeping import Keeping
from flows.model.order import read
from flows.tails.reading import RunReading
from kernel.durations import millis
from kernel.ledger import Ledger
from kernel.log.exported import Exported
from kernel.redis import keys
from kernel.redis.keys import RunKey
from kernel.service.resources import Resources
from tests.flows.engine_rig import EngineRig, define, done
from tests.flows.engine_rig import quick as quick_engine
from tests.ingest.harness import Client
from tests.worker.conftest import Jobs
from worker_svc import bootstrap

LARGE = "x" * 100_000
"""More than an event holds."""


@pytest.fixture
async def moved(worker_config: Config) -> AsyncIterator[tuple[Config, Resources]]:
    """The configuration after the change, and what such a process has opened."""
    config = Config()
    config.CopyFrom(worker_config)
    config.object_store.bucket = f"{worker_config.object_store.bucket}-new"
    opened = await Resources.open(config)
    await opened.objects.ensure_bucket()
    yield config, opened
    await opened.close()


async def _keys(resources: Resources, bucket: str, prefix: str) -> list[str]:
    return sorted(found.key for found in await resources.objects.list(bucket, prefix))


async def test_a_job_that_waits_is_stored_where_it_was_accepted(
    worker_config: Config, resources: Resources, moved: tuple[Config, Resources], site: SampleSite
) -> None:
    async with Client.serving(worker_config, resources) as client:
        entries = [{"id": "a", "url": site.url("/images/1.png")}, {"id": "b", "url": site.url("/status/404")}]
        answer = await client.submit({"manifest_version": "v1", "resources": entries})
    old, (config, opened) = worker_config.object_store.bucket, moved
    worker = await bootstrap.build(config, opened)
    await worker.start()
    jobs = Jobs(config, opened, Ledger(opened.redis, config))
    record = await jobs.ended(answer.job_id)
    assert record.status == "partial"
    record = await jobs.until(answer.job_id, lambda record: bool(record.results_key))
    assert record.results_key == f"s3://{old}/manifests/default/{answer.job_id}/results.jsonl"
    body = await opened.objects.get(old, f"manifests/default/{answer.job_id}/results.jsonl")
    await worker.stop()
    stored, failed = [json.loads(line) for line in (body or b"").splitlines()]
    assert (stored["key"], failed["state"]) == (f"s3://{old}/resources/default/{answer.job_id}/a", "failed")
    assert await _keys(opened, old, "resources/") == [f"resources/default/{answer.job_id}/a"]
    assert await _keys(opened, config.object_store.bucket, "") == []


async def test_a_run_goes_on_with_what_lies_where_it_began(
    worker_config: Config, resources: Resources, moved: tuple[Config, Resources]
) -> None:
    quick_engine(worker_config)
    gate = {"reason": "webhook", "channel": "pay", "key": "7"}
    given_to_b = {"saw": "${steps.a.result}", "got": "${gates.b.payload}"}
    steps: dict[str, Any] = {
        "a": {"task": "chat"},
        "b": {"task": "chat", "needs": ["a"], "gate": gate, "with": given_to_b},
    }
    define(worker_config, b'"${steps.a.result}"', **steps)
    old, (config, opened) = worker_config.object_store.bucket, moved
    quick_engine(config)
    define(config, b'"${steps.a.result}"', **steps)
    async with EngineRig.at(worker_config, resources) as before:
        flow_id = await before.start()
        async with before.engine(), before.worker(lambda _entry: done(LARGE)):
            await before.has(flow_id, "step.await.scheduled b")
    assert len(await _keys(opened, old, "flows/")) == 1
    async with EngineRig.at(config, opened) as after:
        payloads = Payloads(opened.redis, opened.objects, config.flow_engine, opened.clock)
        hit = await payloads.hit("manual", json.dumps(LARGE).encode(), flow_id, "b")
        given: list[str] = []

        def run(entry: dict[str, str]) -> Any:
            given.append(entry["payload"])
            return done("short")

        async with after.engine(), after.worker(run):
            await after.gates.trigger(flow_id, "b", hit)
            await after.over(flow_id)
        assert [json.loads(payload) for payload in given[-1:]] == [{"saw": LARGE, "got": LARGE}]
        order = await read(opened.redis, flow_id)
        assert order is not None
        assert order.bucket == old
        shown = await RunReading(opened.redis, opened.objects).whole(order)
        assert json.loads(shown.result) == LARGE
        assert len(await _keys(opened, old, "flows/")) == 3
        assert await _keys(opened, config.object_store.bucket, "") == []
        await opened.redis.commands.hset(keys.flow(RunKey(flow_id)), "ended", "1")
        await opened.redis.commands.zadd(keys.FLOWS_ENDED, {flow_id: 1})
        exported = Exported(opened.redis, millis(config.exporter.hold))
        assert await Keeping(opened.redis, config.flow_engine, opened.objects, exported).forget() == 1
        assert await _keys(opened, old, "flows/") == []


async def test_payloads_of_nobody_are_deleted_where_they_were_stored(
    worker_config: Config, resources: Resources, moved: tuple[Config, Resources]
) -> None:
    old, (config, opened) = worker_config.object_store.bucket, moved
    before = Payloads(resources.redis, resources.objects, worker_config.flow_engine, resources.clock)
    await before.hit("webhook", json.dumps(LARGE).encode())
    await resources.objects.put(old, "deliveries/2020-01-31/old.json", b"{}")
    await opened.redis.commands.zadd(keys.FLOW_PAYLOADS, {f"{old}-removed": 1})
    after = Payloads(opened.redis, opened.objects, config.flow_engine, opened.clock)
    assert [await after.tidy(), await after.tidy()] == [1, 0]
    assert len(await _keys(opened, old, "deliveries/")) == 1
    buckets = await opened.redis.commands.zrange(keys.FLOW_PAYLOADS, 0, -1)
    assert {bucket.decode() for bucket in buckets} == {old, config.object_store.bucket}
