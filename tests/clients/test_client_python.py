"""The Python client, sync and async, against a whole platform that asks for tokens."""

import inspect
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

import fetchbox_client
from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from fetchbox.errors.v1.errors_pb2 import Reason
from fetchbox_client import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    FailedPreconditionError,
    ForbiddenError,
    IdempotencyConflictError,
    InvalidPayloadError,
    JobFailedError,
    NotFoundError,
    UnauthorizedError,
    UnsupportedJobTypeError,
)
from fetchbox_client.aio_flows import AsyncFlows
from fetchbox_client.aio_jobs import AsyncDeadLetters, AsyncJobs
from fetchbox_client.flows import Flows
from fetchbox_client.jobs import DeadLetters, Jobs
from tests.clients.conftest import OPERATOR, TENANT, operators
from tests.clients.remote import RemoteWorker


@pytest.fixture
async def aclient(platform_up: LocalPlatform) -> AsyncIterator[AsyncClient]:
    config = platform_up.config
    async with AsyncClient(config.ingest.listen, operator=config.operator.listen, token=OPERATOR) as found:
        yield found


def test_a_manifest_is_submitted_watched_and_its_results_read(client: Client, web: SampleSite, read: Any) -> None:
    resources = [{"id": "photo", "url": web.url("/photo.jpg")}, {"id": "gone", "url": web.url("/status/404")}]
    job = client.jobs.submit({"resources": resources, "metadata": {"big": 847458834325543643}})
    types = [event.type for event in client.jobs.watch(job.job_id)]
    assert (types[0], types[-1]) == ("hello", "done")
    snapshot = client.jobs.snapshot(job.job_id)
    assert (snapshot.status, snapshot.resource_completed, snapshot.resource_failed) == ("partial", 1, 1)
    results = {result.resource_id: result for result in client.jobs.results(job.job_id, read)}
    assert (results["photo"].state, results["gone"].state) == ("stored", "failed")
    assert results["gone"].error_code == "DOWNLOAD_HTTP_404"
    assert len(read(*results["photo"].place)) == results["photo"].size > 0
    assert b"847458834325543643" in read(*fetchbox_client.results.place_of(job.manifest_key))
    with pytest.raises(JobFailedError, match="ended as partial"):
        client.jobs.result(job.job_id)


def test_a_task_job_gives_its_result_and_its_list(client: Client, worker: RemoteWorker) -> None:
    job = client.jobs.create("tool", {"text": "ž", "n": 847458834325543643}, ttl_s=600)
    with pytest.raises(FailedPreconditionError, match="has no results"):
        next(client.jobs.results(job.job_id, lambda _bucket, _key: b""))
    claim = worker.claim(job.job_id)
    assert claim.payload == {"text": "ž", "n": 847458834325543643}
    claim.tokens("a", "b")
    claim.complete({"words": [1]})
    assert client.jobs.result(job.job_id, timeout=30) == {"words": [1]}
    other = client.jobs.create("tool", {})
    assert client.jobs.cancel(other.job_id).status == "canceled"
    with pytest.raises(JobFailedError) as failed:
        client.jobs.result(other.job_id)
    assert (failed.value.status, failed.value.code) == ("canceled", "SYSTEM_CANCELED")
    found = [one.job_id for one in client.jobs.list(task="tool", page_size=1)]
    assert found[:2] == [other.job_id, job.job_id]
    tail = [event.type for event in client.jobs.watch(job.job_id)]
    assert tail == ["hello", "queued", "running", "token", "token", "done"]


async def test_the_async_client_does_the_same(aclient: AsyncClient, worker: RemoteWorker) -> None:
    job = await aclient.jobs.create("tool", {"text": "a"})
    claim = worker.claim(job.job_id)
    claim.tokens("a", "b")
    seen = []
    async for event in aclient.jobs.watch(job.job_id):
        seen.append((event.type, event.data.get("text"), event.is_end))
        if event.data.get("text") == "b":
            claim.complete("yes")
    assert seen[-3:] == [("token", "a", False), ("token", "b", False), ("done", None, True)]
    assert await aclient.jobs.result(job.job_id) == "yes"
    newest = [one.job_id async for one in aclient.jobs.list(task="tool", status="done")]
    assert newest[:1] == [job.job_id]
    snapshot = await aclient.jobs.snapshot(job.job_id)
    assert snapshot.status == "completed"
    with pytest.raises(NotFoundError):
        await aclient.flows.get("none")


def test_dead_letters_are_listed_replayed_and_purged(client: Client, worker: RemoteWorker) -> None:
    job = client.jobs.create("tool", {"text": "a"})
    worker.claim(job.job_id).fail("VALIDATION_PAYLOAD", "no such thing")
    with pytest.raises(JobFailedError) as failed:
        client.jobs.result(job.job_id)
    assert (failed.value.code, failed.value.message) == ("VALIDATION_PAYLOAD", "no such thing")
    (letter,) = client.dead_letters.list(job_id=job.job_id)
    assert (letter.task, letter.failure_code) == ("tool", "VALIDATION_PAYLOAD")
    assert [one.outcome for one in client.dead_letters.replay([letter.position])] == ["replayed"]
    worker.claim(job.job_id).complete(1)
    types = [event.type for event in client.jobs.watch(job.job_id)]
    assert types[1:] == ["queued", "running", "error", "replayed", "running", "done"], "an end that was taken back"
    assert client.jobs.result(job.job_id) == 1
    assert client.dead_letters.purge([letter.position]).purged == 1
    assert [*client.dead_letters.list(job_id=job.job_id)] == []


def test_a_flow_is_started_approved_signaled_and_tailed(client: Client) -> None:
    started = client.flows.start("review", {"parcel": "p 1"}, tags=["red"])
    run = started.flow.flow_id
    assert [secret.step_key for secret in started.secrets] == ["ask"]
    kinds = []
    for event in client.flows.tail(run):
        kinds.append(event.kind)
        if event.kind == "step.await.scheduled" and event.meta["stepKey"] == "ask":
            gate = client.flows.approve(run, "ask", {"by": "me"}, secret=started.secrets[0].secret)
            assert (gate.state, gate.by) == ("triggered", "manual")
        elif event.kind == "step.await.scheduled":
            answer = client.flows.signal("parcel.sent", "p 1", {"at": 1})
            assert answer.released == 1 or answer.parked, "kept until its gate is placed"
    assert (kinds[0], kinds[-1]) == ("flow.start", "flow.complete")
    assert client.flows.get(run).result == b'{"by":"me"}'
    assert run in [flow.flow_id for flow in client.flows.list(flow="review", tag="red")]
    (last,) = client.flows.tail(run, last=1)
    assert last.is_end
    again = client.flows.start("review", {}, flow_id="to-reject")
    for event in client.flows.tail("to-reject", kinds=["step.await.*", "flow.**"]):
        if event.kind == "step.await.scheduled":
            client.flows.reject(again.flow.flow_id, "ask")
    assert event.kind == "flow.failed"
    client.flows.start("review", {}, flow_id="to-cancel")
    assert client.flows.cancel("to-cancel", reason="enough").status == "cancelled"


def test_errors_are_typed_by_their_reason(client: Client, platform_up: LocalPlatform) -> None:
    with pytest.raises(NotFoundError, match=r"^NOT_FOUND: There is no job none"):
        client.jobs.get("none")
    with pytest.raises(NotFoundError):
        next(client.jobs.watch("none"))
    with pytest.raises(InvalidPayloadError) as invalid:
        client.jobs.submit({"resources": [{"id": "a", "url": "ftp://example.com/"}]})
    assert [one.field for one in invalid.value.violations] == ["resources[0].url"]
    with pytest.raises(UnsupportedJobTypeError):
        client.jobs.create("plan", {})
    with pytest.raises(ValueError, match="JSON"):
        client.jobs.create("tool", {"n": float("nan")})
    job = client.jobs.create("tool", {"n": 1}, idempotency_key="one-key")
    with pytest.raises(IdempotencyConflictError) as conflict:
        client.jobs.create("tool", {"n": 2}, idempotency_key="one-key")
    assert conflict.value.idempotency_key == "one-key"
    client.jobs.cancel(job.job_id)
    with operators(platform_up, token="nobody's") as stranger, pytest.raises(UnauthorizedError):
        stranger.jobs.get(job.job_id)


def test_a_tenant_sees_its_own_jobs_and_none_of_the_operators(client: Client, platform_up: LocalPlatform) -> None:
    with operators(platform_up, token=TENANT, tenant="acme") as tenant:
        job = tenant.jobs.create("tool", {})
        assert (job.tenant, tenant.jobs.cancel(job.job_id).status) == ("acme", "canceled")
        assert {one.tenant for one in tenant.jobs.list()} == {"acme"}
        with pytest.raises(ForbiddenError):
            tenant.jobs.snapshot(job.job_id)
    with operators(platform_up, token=TENANT, tenant="other") as mistaken, pytest.raises(ForbiddenError):
        mistaken.jobs.submit({"resources": [{"id": "a", "url": "http://127.0.0.1:1/"}]})


def test_each_reason_has_its_class() -> None:
    reasons = {name.removeprefix("REASON_") for name in Reason.DESCRIPTOR.values_by_name} - {"UNSPECIFIED"}
    assert reasons | {"DEADLINE_EXCEEDED"} == set(fetchbox_client.BY_REASON)
    assert len(set(fetchbox_client.BY_REASON.values())) == len(fetchbox_client.BY_REASON)


@pytest.mark.parametrize(
    ("sync", "asynchronous"),
    [(Client, AsyncClient), (Jobs, AsyncJobs), (Flows, AsyncFlows), (DeadLetters, AsyncDeadLetters)],
)
def test_both_clients_have_the_same_methods(sync: type, asynchronous: type) -> None:
    def shape(kind: type) -> dict[str, list[tuple[str, Any]]]:
        functions = inspect.getmembers(kind, inspect.isfunction)
        return {
            name: [(one.name, one.default) for one in inspect.signature(function).parameters.values()]
            for name, function in functions
            if not name.startswith("_") or name == "__init__"
        }

    assert shape(sync) == shape(asynchronous)


def test_a_call_ends_at_its_deadline() -> None:
    """A server that takes connections and answers nothing keeps nobody for ever."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with Client(target, timeout=0.2) as hasty, pytest.raises(DeadlineExceededError) as late:
            hasty.jobs.create("tool", {}, idempotency_key="k")
    assert late.value.idempotency_key == "k"


def test_a_stream_ends_at_its_timeout(client: Client) -> None:
    job = client.jobs.create("tool", {})
    with pytest.raises(DeadlineExceededError, match="did not end within its timeout"):
        list(client.jobs.watch(job.job_id, timeout=0.2))
    client.jobs.cancel(job.job_id)
