"""A dependency that hangs, which takes connections and answers nothing: an RPC says so, in time, and what to do."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cli.embedded.seaweed import SeaweedFS
from cli.embedded.valkey import Valkey
from fetchbox.config.v1.config_pb2 import Config
from kernel import rpc_wait
from kernel.service.resources import Resources
from tests.ingest.harness import Client

KEY = {"x-fetchbox-idempotency-key": "k1"}


@contextmanager
def hanging(pid: int) -> Iterator[None]:
    """The process stands still meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_hanging_object_store_is_unavailable_with_a_reason(
    client: Client, s3: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_wait, "LONGEST", 0.5)
    with hanging(s3.pid):
        for headers, advice in ((KEY, "same idempotency key"), ({}, "idempotency key")):
            refusal = await client.refusal(headers=headers)
            assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
            assert "object store" in refusal.message
            assert advice in refusal.message
            assert refusal.retry_after
    monkeypatch.undo()
    answer = await client.submit(headers=KEY)
    assert answer.resource_count == 2
    assert (await client.submit(headers=KEY)).job_id == answer.job_id


async def test_the_answer_comes_before_a_deadline_of_the_client(client: Client, s3: SeaweedFS) -> None:
    """The harness gives its calls 60 s; a client of its own gives four, and hears the reason within."""
    stub, timeouts = client.stub, []

    class Hasty:
        """The stub with another deadline."""

        async def SubmitJob(self, request: object, metadata: object, timeout: float) -> object:  # noqa: N802, ASYNC109 - of gRPC
            timeouts.append(timeout)
            return await stub.SubmitJob(request, metadata=metadata, timeout=4)

    client.stub = Hasty()
    with hanging(s3.pid):
        refusal = await client.refusal(headers=KEY)
    assert timeouts == [60]
    assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")


async def test_a_hanging_redis_is_unavailable_with_a_reason(config: Config, valkey: Valkey) -> None:
    config.redis.read_timeout.FromMilliseconds(300)
    resources = await Resources.open(config)
    async with Client.serving(config, resources) as client:
        with hanging(valkey.pid):
            refusal = await client.refusal(headers=KEY)
        assert (refusal.status, refusal.reason) == (503, "UNAVAILABLE")
        assert "Redis" in refusal.message
        assert "same idempotency key" in refusal.message
    await resources.close()


def test_every_wait_within_an_rpc_is_shorter_than_that_of_a_gateway() -> None:
    from gateway import upstream  # noqa: PLC0415 - ingest knows no gateway

    assert 3 * rpc_wait.LONGEST < upstream.DEADLINE
