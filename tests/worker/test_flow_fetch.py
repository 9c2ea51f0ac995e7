"""Steps that are jobs of manifests: through a real ingest service to real workers, and back into the timeline."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from flows.engine.sending import Postponed, StepManifest
from flows.model.course import Problem
from kernel.config.loading import defaults
from kernel.ledger import Ledger
from kernel.service.resources import Resources
from tests.flows.engine_rig import EngineRig, define, until
from tests.ingest.harness import Client
from tests.worker.conftest import Start
from tests.worker.step_rig import path
from worker_svc.flows import Submitting

FETCH: dict[str, Any] = {"job_type": "default", "max_retries": 0}
GOOD, BAD = "/images/1.png", "/status/404"


@pytest.fixture
async def box(worker_config: Config, resources: Resources, start_worker: Start) -> AsyncIterator[EngineRig]:
    """Ingest, a worker with its engine, and what starts runs."""
    config = worker_config
    config.worker.ingest = config.ingest.listen
    define(
        config,
        fetch={**FETCH, "with": {"manifest_version": "v1", "resources": "${input}"}},
        look={"needs": ["fetch"], "handler": path("Stepping"), "with": "${steps.fetch.result}"},
    )
    async with Client.serving(config, resources), EngineRig.at(config, resources) as made:
        await start_worker(config)
        yield made


def _resources(site: SampleSite, *names: str) -> list[dict[str, str]]:
    return [{"id": f"r{index}", "url": site.url(name)} for index, name in enumerate(names)]


@pytest.mark.req("R003-1.1.15")
async def test_a_manifest_is_fetched_and_later_steps_see_what_was_stored(box: EngineRig, site: SampleSite) -> None:
    flow_id = await box.start(given=_resources(site, GOOD, "/images/2.png"))
    state = await box.over(flow_id)
    job_id = state.steps["fetch"].job_id
    assert state.steps["fetch"].queue == "jobs.tasks"
    result = json.loads(state.steps["fetch"].result or b"")
    bucket = box.config.object_store.bucket
    assert result == {
        "jobId": job_id,
        "status": "done",
        "completed": 2,
        "failed": 0,
        "total": 2,
        "manifestKey": f"s3://{bucket}/manifests/default/{job_id}/metadata.json",
        "resultsKey": f"s3://{bucket}/manifests/default/{job_id}/results.jsonl",
        "resources": [{"id": f"r{n}", "key": f"s3://{bucket}/resources/default/{job_id}/r{n}"} for n in range(2)],
    }
    assert json.loads(state.steps["look"].result or b"")["payload"] == result
    record = await Ledger(box.resources.redis, box.config).get(job_id)
    assert record is not None
    assert record.flow == f"{flow_id} fetch 1"
    started = [event for event in await box.timeline(flow_id) if event.kind == "step.attempt.started"]
    assert [json.loads(event.meta)["jobId"] for event in started] == [job_id, state.steps["look"].run_id]


@pytest.mark.parametrize(
    ("names", "allowed", "code"),
    [((BAD,), False, "DOWNLOAD_HTTP_404"), ((GOOD, BAD), False, "DOWNLOAD_PARTIAL"), ((GOOD, BAD), True, "")],
    ids=["failed", "partial", "allowed"],
)
async def test_what_a_failed_or_partial_job_means(
    box: EngineRig, site: SampleSite, names: tuple[str, ...], allowed: bool, code: str
) -> None:
    box.config.flows["f"].steps["fetch"].allow_partial = allowed
    flow_id = await box.start(given=_resources(site, *names))
    state = await box.over(flow_id, "failed" if code else "completed")
    if code:
        assert json.loads(state.steps["fetch"].error or b"")["code"] == code
    else:
        result = json.loads(state.steps["fetch"].result or b"")
        assert (result["status"], result["completed"], result["failed"]) == ("partial", 1, 1)
        assert [resource["id"] for resource in result["resources"]] == ["r0"]


async def test_a_manifest_that_is_none_fails_the_step(box: EngineRig) -> None:
    flow_id = await box.start(given=[])
    state = await box.over(flow_id, "failed")
    assert json.loads(state.error or b"")["code"] == "VALIDATION_MANIFEST"


@pytest.mark.parametrize("tenant", ["", "t1"])
async def test_a_job_whose_submitter_died_is_stopped_with_its_run(
    worker_config: Config, resources: Resources, site: SampleSite, tenant: str
) -> None:
    config = worker_config
    config.worker.ingest = config.ingest.listen
    config.worker.ingest_token = "token"
    if not tenant:
        config.security.tenant_tokens["token"] = "t2"
    define(config, fetch={**FETCH, "with": {"manifest_version": "v1", "resources": "${input}"}})
    submits, made = Submitting(config), asyncio.Queue[Any]()
    async with Client.serving(config, resources), EngineRig.at(config, resources) as box:

        async def never_told(manifest: StepManifest) -> Any:
            made.put_nowait(await submits.submit(manifest))
            await asyncio.Event().wait()

        box.ingest.submit = never_told  # type: ignore[method-assign]  # the engine dies before it has the answer
        async with box.engine() as engine:
            flow_id = await box.start(given=_resources(site, GOOD), tenant=tenant)
            job_id = await made.get()
            await engine.drain(0)
            await engine.stop()
        await submits.stop()
        await box.gates.cancel_flow(flow_id)
        async with box.engine():
            await box.resting()
        record = await box.record(job_id)
    assert (record["tenant"], record["status"]) == (tenant or "t2", "canceled")


async def test_resources_that_do_not_fit_an_event_are_left_to_the_results_document(
    worker_config: Config, resources: Resources, start_worker: Start, site: SampleSite
) -> None:
    config = worker_config
    config.worker.ingest = config.ingest.listen
    config.flow_engine.max_event_bytes = 2048
    define(config, fetch={**FETCH, "with": {"manifest_version": "v1", "resources": "${input}"}})
    async with Client.serving(config, resources), EngineRig.at(config, resources) as box:
        await start_worker(config)
        flow_id = await box.start(given=_resources(site, *[GOOD] * 8))
        state = await box.over(flow_id)
    result = json.loads(state.steps["fetch"].result or b"")
    assert result["completed"] == 8
    assert "resources" not in result


async def test_ingest_that_is_away_is_no_fault_of_the_manifest() -> None:
    config = defaults()
    config.worker.ingest = "127.0.0.1:1"
    submits = Submitting(config)
    try:
        told = await submits.submit(StepManifest("default", "", b"{}", "key"))
        again = await submits.submit(StepManifest("default", "", b"{}", "another"))
    finally:
        await submits.stop()
    assert isinstance(told, Postponed)
    assert isinstance(again, Postponed)
    assert "not asked yet again" in again.message
    assert 0 < (again.seconds or 0) <= (told.seconds or 0)


async def test_one_submit_finds_out_that_ingest_is_back(resources: Resources, config: Config) -> None:
    config.worker.ingest = config.ingest.listen
    config.worker.backoff.max.FromMilliseconds(50)
    submits, manifest = Submitting(config), StepManifest("default", "", b"{}", "key")
    try:
        assert isinstance(await submits.submit(manifest), Postponed)
        async with Client.serving(config, resources):

            async def told() -> bool:
                return isinstance(await submits.submit(manifest), Problem)

            await until(told, "ingest is asked, and says what is wrong")
            assert isinstance(await submits.submit(manifest), Problem), "nobody waits any more"
    finally:
        await submits.stop()
