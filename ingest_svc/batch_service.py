"""CreateJobs and CreateJobStream: from many requests to a result for each, in their order.

A batch is read in pieces that are short enough for the event loop, and the jobs of one piece are made while the next
one is read. A stream has a window of orders in progress; it is read on as results leave.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from fetchbox.errors.v1 import errors_pb2
from fetchbox.task.v1 import task_service_pb2 as pb
from fetchbox.task.v1.job_pb2 import Job
from ingest_svc.order_reading import OrderReader, Read, pieces
from ingest_svc.order_window import OrderWindow
from ingest_svc.running import Running
from ingest_svc.task_batch import BatchCreator, Outcome, error_of
from ingest_svc.task_creation import TaskCreator
from ingest_svc.task_order import HEAVY_BYTES, Sender, TaskOrder
from ingest_svc.task_whole import WholeCreator, at
from kernel.breakers.ratelimit import RateLimit
from kernel.errors import FetchboxError, Violation, reason_name, to_status
from kernel.offload import Offload
from kernel.telemetry import metrics
from kernel.validation import require_valid

MOST_BYTES: Final = 4 << 20
"""Bytes that the payloads of one batch have together."""


@dataclass(frozen=True, slots=True)
class BatchService:
    """The part of the task service that takes many orders."""

    reader: OrderReader
    creator: TaskCreator
    batches: BatchCreator
    wholes: WholeCreator
    rate: RateLimit
    offload: Offload
    running: Running

    async def create(self, request: pb.CreateJobsRequest, sender: Sender) -> pb.CreateJobsResponse:
        """The results of a batch; raises what refuses it as a whole."""
        sender.require_no_key()
        require_valid(request)
        _require_small(request.requests)
        outcomes = await (self._whole(request, sender) if request.all_or_none else self._each(request, sender))
        _require_an_outcome(outcomes)
        accepted = sum(isinstance(outcome, Job) for outcome in outcomes)
        results = map(_result, outcomes)
        return pb.CreateJobsResponse(results=results, accepted=accepted, refused=len(outcomes) - accepted)

    async def stream(
        self, requests: AsyncIterator[pb.CreateJobStreamRequest], sender: Sender
    ) -> AsyncIterator[pb.CreateJobStreamResponse]:
        """The results of a stream of orders."""
        sender.require_no_key()
        window = OrderWindow[Outcome](requests, lambda order: self.running.begin(self._one(order.request, sender)))
        async with window:
            async for number, outcome in window:
                yield pb.CreateJobStreamResponse(number=number, result=_result(outcome))

    async def _one(self, request: pb.CreateJobRequest, sender: Sender) -> Outcome:
        (order,) = await self._read([request], sender)
        if isinstance(order, FetchboxError):
            return order
        try:
            await self.rate.take(sender.caller.tenant)
            job = await self.creator.create(order, sender.caller)
        except Exception as error:  # noqa: BLE001 - an order that fails is one result, and the stream goes on
            return error_of(error)
        job.ClearField("payload")
        return job

    async def _each(self, request: pb.CreateJobsRequest, sender: Sender) -> list[Outcome]:
        begun: list[tuple[list[Read], asyncio.Future[list[Outcome]]]] = []
        for piece in pieces(request.requests):
            read = await self._read(piece, sender)
            orders = [order for order in read if isinstance(order, TaskOrder)]
            begun.append((read, self.running.begin(self._made(orders, sender))))
            await asyncio.sleep(0)
        outcomes: list[Outcome] = []
        for read, making in begun:
            made = iter(await making)
            outcomes += (order if isinstance(order, FetchboxError) else next(made) for order in read)
        return outcomes

    async def _made(self, orders: Sequence[TaskOrder], sender: Sender) -> list[Outcome]:
        if not orders:
            return []
        try:
            allowed, refusal = await self.rate.take_some(sender.caller.tenant, len(orders))
        except FetchboxError as error:
            return [error] * len(orders)
        made = await self.batches.create(orders[:allowed], sender.caller)
        return made if refusal is None else [*made, *[refusal] * (len(orders) - allowed)]

    async def _whole(self, request: pb.CreateJobsRequest, sender: Sender) -> list[Job]:
        orders: list[TaskOrder] = []
        for piece in pieces(request.requests):
            for order in await self._read(piece, sender):
                if isinstance(order, FetchboxError):
                    raise at(order, len(orders))
                orders.append(order)
            await asyncio.sleep(0)
        _, refusal = await self.rate.take_some(sender.caller.tenant, len(orders))
        if refusal is not None:
            raise refusal
        return await self.running.to_the_end(self.wholes.create(orders, sender.caller))

    async def _read(self, requests: Sequence[pb.CreateJobRequest], sender: Sender) -> list[Read]:
        is_heavy = sum(len(request.payload) for request in requests) > HEAVY_BYTES
        return await self.offload.run(is_heavy, partial(self.reader.read, requests, sender))


def _require_small(requests: Sequence[pb.CreateJobRequest]) -> None:
    size = sum(len(request.payload) for request in requests)
    if size > MOST_BYTES:
        rule = f"must have at most {MOST_BYTES} bytes together"
        raise FetchboxError(
            errors_pb2.REASON_PAYLOAD_TOO_LARGE,
            f"requests: the payloads have {size} bytes, and at most {MOST_BYTES} are allowed: send smaller batches",
            (Violation("requests", rule, "batch.max_bytes"),),
        )


def _require_an_outcome(outcomes: Sequence[Outcome]) -> None:
    """A batch of which nothing is known is one call that failed."""
    first = outcomes[0]
    if isinstance(first, FetchboxError) and all(
        isinstance(one, FetchboxError) and one.reason == errors_pb2.REASON_UNAVAILABLE for one in outcomes
    ):
        raise first


def _result(outcome: Outcome) -> pb.CreateJobResult:
    if isinstance(outcome, Job):
        return pb.CreateJobResult(job=outcome)
    metrics.JOBS_REFUSED.labels(reason_name(outcome.reason)).inc()
    return pb.CreateJobResult(error=to_status(outcome))
