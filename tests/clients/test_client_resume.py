"""What the Python client survives: a server killed in mid-stream, and answers that get lost."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from cli.local import LocalPlatform
from cli.serve import Role
from fetchbox_client import AsyncClient, Client, RetryPolicy, UnavailableError
from tests.clients.conftest import OPERATOR, operators
from tests.clients.cutting import Cutting, grpc_answer
from tests.clients.remote import Claim, RemoteWorker

TYPES = ["hello", "queued", "running", *["token"] * 6, "done"]


class Killing:
    """Plays a job whose server is killed with -9 in its middle, or stopped, and comes back."""

    def __init__(self, platform: LocalPlatform, role: Role, claim: Claim, *, gently: bool = False) -> None:
        self._platform, self._role, self._claim, self._gently = platform, role, claim, gently
        self.seen: list[tuple[str, str]] = []

    def take(self, kind: str, data: Any) -> None:
        """Notes an event. The server dies when the client has the third token, and three more follow."""
        text = data.get("text", "")
        self.seen.append((kind, text))
        if kind == "running":
            self._claim.tokens("1", "2", "3")
        elif text == "3":
            child = self._platform.roles[self._role]
            if self._gently:
                child.stop(30)
            else:
                child.kill9()
            self._claim.tokens("4", "5")
            child.launch()
            self._claim.tokens("6")
            self._claim.complete("end")

    def check(self) -> None:
        """Each event came once, in order."""
        assert [kind for kind, _ in self.seen] == TYPES
        assert [text for kind, text in self.seen if kind == "token"] == list("123456")


def test_a_watch_goes_on_after_ingest_was_killed(
    client: Client, platform_up: LocalPlatform, worker: RemoteWorker
) -> None:
    job = client.jobs.create("tool", {})
    killing = Killing(platform_up, Role.INGEST, worker.claim(job.job_id))
    for event in client.jobs.watch(job.job_id):
        killing.take(event.type, event.data)
    killing.check()


async def test_an_async_watch_and_a_tail_go_on_after_it_was_stopped(
    platform_up: LocalPlatform, worker: RemoteWorker
) -> None:
    config = platform_up.config
    async with AsyncClient(config.ingest.listen, operator=config.operator.listen, token=OPERATOR) as client:
        run = (await client.flows.start("review", {"parcel": "p"})).flow.flow_id
        tail = client.flows.tail(run)
        ids = [(await anext(tail)).id]
        job = await client.jobs.create("tool", {})
        killing = Killing(platform_up, Role.INGEST, worker.claim(job.job_id), gently=True)
        async for event in client.jobs.watch(job.job_id):
            killing.take(event.type, event.data)
        killing.check()
        await client.flows.approve(run, "ask", {})
        await client.flows.signal("parcel.sent", "p")
        ids += [one.id async for one in tail]
        assert ids == [one.id async for one in client.flows.tail(run)]
        assert (await client.flows.get(run)).status == "completed"


def _submitted(client: Client) -> str:
    job = client.jobs.submit({"resources": [{"id": "a", "url": "http://127.0.0.1:1/"}]})
    client.jobs.cancel(job.job_id)
    return job.job_id


def _created(client: Client) -> str:
    return client.jobs.cancel(client.jobs.create("tool", {}).job_id).job_id


@pytest.mark.parametrize("make", [_submitted, _created])
def test_a_retry_after_a_lost_answer_makes_one_job(
    client: Client, platform_up: LocalPlatform, make: Callable[[Client], str]
) -> None:
    before = {job.job_id for job in client.jobs.list()}
    with (
        Cutting(platform_up.config.ingest.listen, grpc_answer, losses=2) as proxy,
        operators(platform_up, target=proxy.addr) as unlucky,
    ):
        made = make(unlucky)
        assert proxy.losses == 0, "two answers were lost"
    assert {job.job_id for job in client.jobs.list()} - before == {made}


def test_a_start_of_a_run_is_repeated_and_a_signal_is_not(client: Client, platform_up: LocalPlatform) -> None:
    ingest = platform_up.config.ingest.listen
    before = {flow.flow_id for flow in client.flows.list()}
    with Cutting(ingest, grpc_answer) as proxy, operators(platform_up, target=proxy.addr) as unlucky:
        run = unlucky.flows.start("review", {"parcel": "lost"}).flow.flow_id
    assert {flow.flow_id for flow in client.flows.list()} - before == {run}
    with Cutting(ingest, grpc_answer) as proxy, operators(platform_up, target=proxy.addr) as unlucky:
        with pytest.raises(UnavailableError):
            unlucky.flows.signal("parcel.sent", "lost")
        assert proxy.losses == 0
    client.flows.cancel(run)


def test_who_has_tried_often_enough_gives_up(platform_up: LocalPlatform) -> None:
    retry = RetryPolicy(attempts=3, first_pause=0.01)
    with (
        Cutting(platform_up.config.ingest.listen, grpc_answer, losses=9) as proxy,
        operators(platform_up, target=proxy.addr, retry=retry) as unlucky,
    ):
        with pytest.raises(UnavailableError) as failed:
            unlucky.jobs.create("tool", {})
        assert proxy.losses == 9 - 3
    with operators(platform_up) as client:
        again = client.jobs.create("tool", {}, idempotency_key=failed.value.idempotency_key)
        assert client.jobs.cancel(again.job_id).status == "canceled"
        assert [job.job_id for job in itertools.islice(client.jobs.list(task="tool"), 1)] == [again.job_id]


def test_a_stream_without_its_server_gives_up_after_its_patience(platform_up: LocalPlatform) -> None:
    retry = RetryPolicy(patience=0.2)
    with operators(platform_up, target="127.0.0.1:1", retry=retry) as lost, pytest.raises(UnavailableError):
        list(lost.jobs.watch("any"))
