"""CreateJobStream: a result for each order, in their order, and never more than a window of them in progress."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import grpc
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fetchbox.config.v1.config_pb2 import Config, Tracing
from fetchbox.task.v1 import task_service_pb2 as pb
from ingest_svc.order_window import MOST, MOST_BYTES, OrderWindow
from kernel.redis import keys
from kernel.service.resources import Resources
from kernel.telemetry import tracing
from tests.ingest.harness import Refusal, until
from tests.ingest.served import credentials
from tests.ingest.task_harness import TaskClient, order, with_tasks


@pytest.fixture
async def client(config: Config, resources: Resources) -> AsyncIterator[TaskClient]:
    with_tasks(config).tasks.max_backlog = 10_000
    config.security.tenant_tokens["token"] = "acme"
    async with TaskClient.serving(config, resources) as made:
        yield made


def _numbered(orders: Iterable[pb.CreateJobRequest], first: int = 0) -> list[pb.CreateJobStreamRequest]:
    return [pb.CreateJobStreamRequest(number=number, request=one) for number, one in enumerate(orders, first)]


def _call(client: TaskClient, orders: object, token: str = "token", key: str | None = None):
    return client.stub.CreateJobStream(orders, metadata=credentials(token, key), timeout=60)


async def test_every_order_has_its_result_in_order(client: TaskClient) -> None:
    orders = [order(payload=b'{"n": %d}' % number) for number in range(MOST + 50)]
    orders[7] = order(payload=b"[]")
    orders[9] = orders[8] = order("same")
    results = [one async for one in _call(client, _numbered(orders, first=-5))]
    assert [one.number for one in results] == list(range(-5, MOST + 45))
    refused = results.pop(7)
    assert Refusal.of_status(refused.result.error).fields == ["payload"]
    jobs = [one.result.job for one in results]
    assert jobs[7] == jobs[8]
    assert {(job.tenant, job.payload, job.status) for job in jobs} == {("acme", b"", "queued")}
    assert sorted({job.job_id for job in jobs}) == sorted(await client.jobs())


async def test_results_come_while_orders_are_still_to_come(client: TaskClient) -> None:
    call = _call(client, None)
    for number in (3, 1, 3):
        (sent,) = _numbered([order()], number)
        await call.write(sent)
        assert (await call.read()).number == number
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_the_call_is_refused_as_every_other_is(client: TaskClient) -> None:
    for token, key, reason in (("", None, "UNAUTHORIZED"), ("token", "k", "INVALID_PAYLOAD")):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _call(client, _numbered([order()]), token, key).read()
        assert Refusal.of(caught.value).reason == reason
    assert await client.jobs() == []


async def test_bytes_that_are_no_order_end_the_stream_behind_the_results_before(client: TaskClient) -> None:
    (good,) = _numbered([order()])
    async with grpc.aio.insecure_channel(client.config.ingest.listen) as channel:
        method = channel.stream_stream("/fetchbox.task.v1.TaskService/CreateJobStream")
        call = method([good.SerializeToString(), b"\xff"], metadata=credentials("token"), timeout=60)
        assert pb.CreateJobStreamResponse.FromString(await call.read()).result.job.task == "chat"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert Refusal.of(caught.value).reason == "INVALID_PAYLOAD"


async def test_what_is_begun_is_made_when_the_client_has_gone(client: TaskClient) -> None:
    call = _call(client, None)
    for one in _numbered(order(f"k{number}") for number in range(5)):
        await call.write(one)
    await call.read()
    call.cancel()
    await until(lambda: _is_whole(client))


async def _is_whole(client: TaskClient) -> bool:
    """Each claimed key has its job on the queue."""
    claimed = await client.redis.keys(f"{keys.task_idempotency('acme', '')}*")
    kept = [await client.redis.hget(name, "answer") for name in claimed]
    return bool(claimed) and all(kept) and len(claimed) == len(await client.queued())


async def test_the_jobs_of_a_batch_and_of_a_stream_go_on_with_the_trace_of_the_call(
    config: Config, resources: Resources
) -> None:
    tracing.configure(Tracing(enabled=True), "test", spans := InMemorySpanExporter())
    parent = ("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01")
    try:
        async with TaskClient.serving(with_tasks(config), resources) as client:
            streamed = client.stub.CreateJobStream(_numbered([order(), order()]), metadata=[parent], timeout=60)
            jobs = [one.result.job async for one in streamed]
            batch = await client.stub.CreateJobs(
                pb.CreateJobsRequest(requests=[order()]), metadata=[parent], timeout=60
            )
            jobs.append(batch.results[0].job)
            assert {job.trace_id for job in jobs} == {"ab" * 16}
            entries = [entry["traceparent"].split("-")[2] for entry in await client.queued()]
    finally:
        await tracing.shutdown()
    made = {f"{span.context.span_id:016x}": span.name for span in spans.get_finished_spans()}
    service = "/fetchbox.task.v1.TaskService"
    assert [made[span] for span in entries] == [*[f"{service}/CreateJobStream"] * 2, f"{service}/CreateJobs"]


async def test_a_window_is_read_on_only_as_results_leave() -> None:
    read: list[int] = []
    begun: list[asyncio.Future[int]] = []

    async def orders() -> AsyncIterator[pb.CreateJobStreamRequest]:
        for number in range(MOST + 1):
            read.append(number)
            yield pb.CreateJobStreamRequest(number=number)
        for number in (-1, -2):
            read.append(number)
            yield pb.CreateJobStreamRequest(number=number, request=order(payload=b"x" * MOST_BYTES))

    def begin(_order: pb.CreateJobStreamRequest) -> asyncio.Future[int]:
        begun.append(asyncio.get_running_loop().create_future())
        return begun[-1]

    async with OrderWindow(orders(), begin) as window:
        results = aiter(window)
        first = asyncio.ensure_future(anext(results))
        await _settled()
        assert (len(read), len(begun)) == (MOST + 1, MOST)
        begun[1].set_result(11)
        await _settled()
        assert not first.done(), "results come in the order of their orders"
        begun[0].set_result(10)
        assert await first == (0, 10)
        await _settled()
        assert (len(read), len(begun)) == (MOST + 2, MOST + 1)
        for number in range(2, MOST + 1):
            begun[number].set_result(number)
        assert [await anext(results) for _ in range(MOST)][-1] == (MOST, MOST)
        await _settled()
        assert (read[-1], len(begun)) == (-2, MOST + 2), "a second one would be too many bytes"
        begun[-1].set_result(1)
        assert await anext(results) == (-1, 1)
        await _settled()
        begun[-1].set_result(2)
        assert [one async for one in results] == [(-2, 2)]


async def _settled() -> None:
    """Whatever can go on has done so."""
    for _ in range(2 * MOST):
        await asyncio.sleep(0)
