"""Ingest logs one line an accepted job, whatever it is, and none for a repetition (issue 11)."""

import logging
from typing import Any

import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.service.resources import Resources
from tests.ingest.flow_harness import FlowClient, with_flows
from tests.ingest.task_harness import TaskClient, with_tasks


def _told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.__dict__["fields"] for record in caplog.records if record.message == event]


async def test_one_line_a_task_job(config: Config, resources: Resources, caplog: pytest.LogCaptureFixture) -> None:
    config.security.tenant_tokens["token-a"] = "a"
    async with TaskClient.serving(with_tasks(config), resources) as client:
        with caplog.at_level(logging.INFO, "fetchbox"):
            job = await client.create(token="token-a", idempotency_key="k")
            again = await client.create(token="token-a", idempotency_key="k", payload=b" " + job.payload + b"\n")
    assert again.job_id == job.job_id, "the same JSON with other spaces is the same request"
    assert _told(caplog, "job_accepted") == [{"job_id": job.job_id, "tenant": "a", "task": job.task}]


async def test_one_line_a_run(config: Config, resources: Resources, caplog: pytest.LogCaptureFixture) -> None:
    async with FlowClient.serving(with_flows(config), resources) as client:
        with caplog.at_level(logging.INFO, "fetchbox"):
            await client.start(flow_id="r", tenant="a", input=b'{"a":1,"b":1.0}')
            await client.start(flow_id="r", tenant="a", input=b'{ "b" : 1, "a" : 1 }')
    assert _told(caplog, "flow_accepted") == [{"flow_id": "r", "flow_name": "plain", "tenant": "a"}]
