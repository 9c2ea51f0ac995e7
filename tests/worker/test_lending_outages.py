"""What is lent while Redis loses replies: a task that its worker never heard of is not kept from the others."""

from collections.abc import Sequence

import grpc
import pytest

from fetchbox.config.v1.config_pb2 import Config
from kernel.errors import unavailable
from kernel.queue.streams.remote import RemoteLeases
from tests.worker.conftest import Start, duty, eventually
from tests.worker.task_rig import Tasks
from tests.worker.test_lending_tasks import Elsewhere, far

__all__ = ["far"]


class Forgetful(RemoteLeases):
    """Leases whose replies to moves are lost at first; what was asked has happened."""

    losses = 1
    repeats = False
    """Whether the question is put again at once, as the client does, or fails for good."""

    async def transfer(
        self, holder: str, origin: str, to: str, partition: int, ids: Sequence[str]
    ) -> list[bool] | None:
        moved = await super().transfer(holder, origin, to, partition, ids)
        if self.losses == 0:
            return moved
        self.losses -= 1
        if self.repeats:
            return await super().transfer(holder, origin, to, partition, ids)
        raise unavailable("the reply is lost")


async def _forgetful(config: Config, tasks: Tasks, start_worker: Start, *, repeats: bool) -> None:
    service = await start_worker(config)
    leases = Forgetful(duty(service, "lending")._leases._clients, config)
    leases.repeats = repeats
    duty(service, "lending")._leases = leases


@pytest.mark.fault(13, 43)
async def test_a_move_whose_reply_was_lost_is_asked_for_again_and_counts(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    await _forgetful(worker_config, tasks, start_worker, repeats=True)
    job_id = await tasks.create({}, "tool")
    assert await far.complete(await far.one()) == "completed"
    await tasks.result(job_id)
    await tasks.empty()


@pytest.mark.fault(13, 43)
async def test_what_a_failed_claim_has_moved_comes_to_another_although_its_worker_lives(
    worker_config: Config, tasks: Tasks, start_worker: Start, far: Elsewhere
) -> None:
    worker_config.worker.heartbeat_ttl.FromSeconds(6)  # what nobody knows of is looked for every half of that
    await _forgetful(worker_config, tasks, start_worker, repeats=False)
    job_id = await tasks.create({}, "tool")
    with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
        await far.claim("tool")
    other = Elsewhere(far.stub, "other")

    async def taken() -> bool:
        await far.beat()  # it lives, so nobody reaps what it seems to hold
        claimed = await other.claim("tool", wait=1)
        return bool(claimed) and await other.complete(claimed[0]) == "completed"

    await eventually(taken, 60)
    await tasks.result(job_id)
    await tasks.empty()
