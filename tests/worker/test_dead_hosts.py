"""A host that does not answer: what waits for it ends together, and one command asks it again."""

import asyncio

from fetchbox.errors.v1 import errors_pb2
from kernel.errors import failure_name
from tests.fetching.origin import Origin, answer
from tests.worker.conftest import Jobs, Start, eventually

DOWN = failure_name(errors_pb2.FAILURE_CODE_DOWNLOAD_HOST_DOWN)
URLS = 60


def dead_soon(jobs: Jobs) -> None:
    """Circuits open after a few failures, and a host is given up a moment after that."""
    breaker = jobs.config.circuit_breaker
    breaker.min_samples = 4
    breaker.cooldown_period.FromMilliseconds(200)
    jobs.config.fetcher.host_give_up.FromMilliseconds(1500)


async def test_what_waits_for_a_dead_host_ends_together(jobs: Jobs, start_worker: Start) -> None:
    dead_soon(jobs)
    async with Origin() as gone:
        pass
    job_id = await jobs.submit({f"r{number}": gone.url(f"/{number}") for number in range(URLS)})
    await start_worker(jobs.config)
    await jobs.ended(job_id)
    lines = await jobs.results(job_id)
    codes = [line["error_code"] for line in lines]
    assert len(lines) == URLS
    assert codes.count(DOWN) > URLS * 2 / 3, "the others were tried before the circuit opened, or as probes"
    text = next(line["error_message"] for line in lines if line["error_code"] == DOWN)
    assert f"fetchbox dlq replay --host 127.0.0.1:{gone.port}" in text


async def test_a_host_that_answers_badly_is_not_down(jobs: Jobs, start_worker: Start) -> None:
    """Its circuit is open for longer than a silent host is waited for."""
    dead_soon(jobs)
    jobs.config.worker.max_retries = 30
    async with Origin(default=answer(b"", status="503 Busy")) as busy:
        job_id = await jobs.submit({f"r{number}": busy.url(f"/{number}") for number in range(8)})
        await start_worker(jobs.config)

        given_up = asyncio.get_running_loop().time() + 2

        async def asked_for_longer() -> bool:
            return asyncio.get_running_loop().time() > given_up and len(busy.seen) > 8

        await eventually(asked_for_longer, 60)
        busy.default = answer(b"well")
        record = await jobs.ended(job_id)
    assert record.status == "done", await jobs.results(job_id)
