"""A run from its start to its result: ingest, gateway and a worker, each with its part of the flow."""

from pathlib import Path
from typing import Any

import grpc
import pytest

import worker_svc.bootstrap
from fetchbox.config.v1.config_pb2 import Config
from kernel.handlers import TaskHandler, TaskRun
from kernel.service.resources import Resources
from tests.gateway.test_gateway_task_events import platform
from tests.ingest.flow_harness import FlowClient
from tests.ingest.harness import until
from tests.ingest.test_crash_windows import dying


class Double(TaskHandler):
    """The handler of both steps."""

    async def run(self, payload: dict[str, int], run: TaskRun) -> dict[str, int]:
        await run.log(f"doubling {payload['n']}")
        return {"n": payload["n"] * 2}


@pytest.fixture
def flows(config: Config) -> Config:
    flow = config.flows["doubled"]
    for key, given in (("first", b'{"n": "${input.n}"}'), ("second", b'{"n": "${steps.first.result.n}"}')):
        flow.steps[key].handler = f"{__name__}:Double"
        setattr(flow.steps[key], "with", given)
    flow.steps["second"].needs.append("first")
    flow.steps["second"].gate.reason = "manual"
    flow.output = b'"${steps.second.result.n}"'
    return config


@pytest.mark.req("R003-1.2.01", "R003-1.2.02", "R003-2.3.46")
async def test_a_run_whose_start_died_goes_on_to_its_result(
    flows: Config, resources: Resources, tmp_path: Path
) -> None:
    """Its order was all that was written: an engine gives it the first event, as it gives it all others."""
    async with dying(flows, "opened", tmp_path) as address, FlowClient.at(address, flows, resources) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.start("doubled", flow_id="r", input=b'{"n": 5}')
    async with platform(flows, resources) as live:
        worker = await worker_svc.bootstrap.build(flows, resources)
        await worker.start()

        async def read(path: str) -> dict[str, Any]:
            async with live.http.get(path) as answer:
                assert answer.status == 200
                found: dict[str, Any] = await answer.json()
                return found

        async def waits() -> bool:
            return (await read("/v1/flows/r")).get("waitStep") == "second"

        async def ended() -> bool:
            return (await read("/v1/flows/r"))["status"] != "running"

        await until(waits, 60)
        async with live.http.post("/v1/flows/r/gates/second/trigger", json={}) as answer:
            assert answer.status == 200
        await until(ended, 60)
        flow = await read("/v1/flows/r")
        assert (flow["status"], flow["result"], flow["input"]) == ("completed", 20, {"n": 5})
        steps = {step["stepKey"]: step for step in flow["steps"]}
        for key, line in (("first", "doubling 5"), ("second", "doubling 10")):
            assert (steps[key]["status"], steps[key]["triesCount"]) == ("completed", 1)
            (log,) = (await read(f"/v1/flows/r/steps/{key}/logs?attempt=1"))["logs"]
            assert (log["data"]["msg"], log["meta"]["stepKey"]) == (line, key)
            assert log["meta"]["jobId"] == steps[key]["jobId"]
            job = await read(f"/v1/jobs/{steps[key]['jobId']}")
            assert job["status"] == "done"
        await worker.stop()
