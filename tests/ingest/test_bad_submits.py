"""Every malformed or hostile submit gets its exact answer, leaves nothing behind, and the service goes on."""

import asyncio

import pytest

from tests.ingest.bad_bodies import BadSubmit, bad_submits
from tests.ingest.harness import Client

pytestmark = pytest.mark.req(
    "R001-1.05", "R001-1.06", "R001-1.12", "R001-1.13", "R001-1.14", "R001-1.16", "R001-1.17", "R001-1.18",
    "R001-1.20", "R001-1.21", "R001-1.22", "R001-1.23", "R001-1.24", "R001-1.26", "R001-1.28", "R001-1.34",
    "R001-1.37", "R001-1.38", "R001-1.39", "R001-1.40", "R001-1.41", "R001-1.58", "R001-1.60", "R001-1.61",
)  # fmt: skip


@pytest.mark.parametrize("case", bad_submits(), ids=lambda case: case.name)
async def test_bad_submit_is_refused(client: Client, case: BadSubmit) -> None:
    refusal = await client.refusal(case.body(), case.headers)

    assert (refusal.status, refusal.reason) == (case.status, case.reason), refusal.message
    if case.fields is not None:
        assert refusal.fields == case.fields
    if case.rules is not None:
        assert refusal.rules == case.rules
    if case.listed is not None:
        assert len(refusal.fields) == case.listed
    assert refusal.message
    assert await client.jobs() == []
    assert await client.tasks() == []


async def test_service_still_answers_after_all_of_them(client: Client) -> None:
    await asyncio.gather(*(client.refusal(case.body(), case.headers) for case in bad_submits()[:60]))

    assert (await client.submit()).resource_count == 2


def test_table_is_large_enough() -> None:
    assert len(bad_submits()) >= 60
