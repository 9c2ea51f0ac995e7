"""What operators see and do on their page, in a real browser before a platform that works and fails."""

import aiohttp
import pytest
import redis.asyncio

from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from tests.stack.desk import Desk
from tests.stack.desk_work import HOSTILE, claim, ended, plan, post, report, row, submit
from tests.stack.test_cli_files import NAMES, letter

pytestmark = pytest.mark.asyncio(loop_scope="module")
SEARCHING = "document.activeElement.id === 'search'"


async def test_the_overview_shows_a_job_from_its_acceptance_to_its_end(desk: Desk, api: aiohttp.ClientSession) -> None:
    await desk.open()
    job = await plan(api)
    await desk.until(f"{row(job)}.includes('queued')")
    held = await claim(api, job)
    await post(api, "/workers/the-desk/tasks:complete", {"claim": held, "result": {"done": True}})
    await desk.until(f"{row(job)}.includes('completed')")
    assert "Health" in await desk.text()


async def test_a_job_is_live_resumes_after_the_tab_was_hidden_and_is_canceled_by_a_click(
    desk: Desk, api: aiohttp.ClientSession
) -> None:
    job = await plan(api)
    held = await claim(api, job)
    await desk.open(f"#/jobs/{job}")
    await report(api, held, 1, f"one {HOSTILE}")
    await desk.sees(f"one {HOSTILE}")
    await desk.turn(hidden=True)
    await desk.sees("paused while this tab is hidden")
    await report(api, held, 2, " two")
    await desk.turn(hidden=False)
    await desk.sees(f"one {HOSTILE} two")
    shown = await desk.page.value("document.querySelector('section[aria-labelledby=events]').innerText")
    assert shown.count("one ") == shown.count("queued") == 1, "what was known is not sent again"
    await desk.click("Cancel")
    await desk.click("Keep as it is")
    await desk.until("document.activeElement.innerText === 'Cancel'")
    await desk.click("Cancel")
    await desk.sees(f"fetchbox jobs cancel {job}")
    await desk.click("Cancel")
    await desk.until("document.querySelector('.status').innerText.includes('canceled')")
    async with api.get(f"/operators/jobs/{job}") as answer:
        assert (await answer.json())["status"] == "canceled"


async def test_hostile_text_is_text_and_a_dead_letter_is_replayed_and_purged_by_clicks(
    desk: Desk, api: aiohttp.ClientSession, failed: str
) -> None:
    for place in (f"#/dead-letters?job={failed}", f"#/jobs/{failed}"):
        await desk.open(place)
        await desk.sees(HOSTILE)
        assert await desk.page.value("document.images.length") == 0
    await desk.go(f"#/dead-letters?job={failed}")
    await desk.until("document.querySelector('td input')?.click() ?? document.querySelector('td input:checked')")
    await desk.click("Replay 1")
    await desk.sees("Replay 1 dead letter?")
    await desk.click("Replay 1")
    await desk.sees("1 dead letter: replayed 1.")
    await ended(api, failed)
    await desk.turn(hidden=False)
    await desk.click("Purge all that match…")
    await desk.sees("Purge 2 dead letters?")
    await desk.click("Purge 2")
    await desk.sees("purged 2")
    await desk.click("Close")
    await desk.sees("There are no such dead letters")
    async with api.get("/operators/dlq", params={"job_id": failed}) as answer:
        assert (await answer.json())["dead_letters"] == []


async def test_everything_is_found_by_the_keyboard(desk: Desk, api: aiohttp.ClientSession, failed: str) -> None:
    await desk.open()
    await desk.press("/")
    await desk.until(SEARCHING)
    await desk.write(failed)
    await desk.sees(f"Job {failed}")
    await desk.press("Enter")
    await desk.until(f"document.activeElement.innerText === 'Job {failed}'")
    await desk.press("k", ctrl=True)
    await desk.until(SEARCHING)
    await desk.write("queu")
    await desk.sees("Jobs: queued")
    await desk.press("ArrowDown")
    await desk.press("Enter")
    await desk.sees("Queues")
    await desk.press("/")
    await desk.until(SEARCHING)
    await desk.press("Escape")
    await desk.until("!document.querySelector('dialog[open]')")


async def test_a_gate_is_opened_by_a_click_and_the_run_goes_on(desk: Desk, api: aiohttp.ClientSession) -> None:
    start = {"flow": "ship", "input": {"attempts": 1, "broken": 0, "parcel": "desk"}}
    run = (await post(api, "/v1/flows", start))["flow"]["flowId"]
    await desk.open("#/flows?flow=ship")
    await desk.until(f"document.querySelector('a[title=\"{run}\"]')")
    await desk.go(f"#/flows/{run}")
    await desk.until("document.querySelector('.graph a.node').ariaLabel === 'pack: waits: manual'")
    await desk.click("Open")
    await desk.sees(f"fetchbox flows trigger {run} pack")
    await desk.click("Open")
    await desk.until("document.querySelector('.graph a.node').ariaLabel === 'pack: completed'")
    await desk.click("Cancel the run")
    await desk.click("Cancel the run")
    await desk.until("document.querySelector('.status').innerText.startsWith('cancelled')")


async def test_all_that_match_are_purged_and_not_those_of_the_page_alone(desk: Desk, platform: LocalPlatform) -> None:
    host, _, port = platform.environ["REDIS_ADDR"].rpartition(":")
    async with redis.asyncio.Redis(host=host, port=int(port)) as store:
        await store.delete(NAMES.dead_letters)
        await store.lpush(NAMES.dead_letters, *(letter(number) for number in range(620)), letter(620, "OTHER"))
        await desk.open("#/file-dead-letters?code=STORAGE_UNAVAILABLE")
        await desk.click("Purge all that match…")
        await desk.sees("Purge 620 dead file jobs?")
        await desk.click("Purge 620")
        await desk.sees("620 of 620: purged 620.")
        await desk.click("Close")
        await desk.sees("There are no such dead file jobs")
        assert await store.llen(NAMES.dead_letters) == 1
        await store.delete(NAMES.dead_letters)


async def test_a_worker_is_paused_and_resumed_and_a_breaker_reset_by_clicks(
    desk: Desk, api: aiohttp.ClientSession, web: SampleSite
) -> None:
    await submit(api, "flaky", web.url("/status/500"))
    await desk.open("#/workers")
    try:
        for name, state in (("Pause", "paused"), ("Resume", "running")):
            await desk.click(name)
            await desk.sees(f"fetchbox worker {name.lower()}")
            await desk.click(name)
            await desk.until(f"document.querySelector('main .badge').innerText === '{state}'")
    finally:
        await post(api, "/workers:resume", {})
    await desk.go("#/breakers")
    await desk.sees("host:127.0.0.1:")
    await desk.click("Reset")
    await desk.sees("fetchbox breakers reset ")  # of whichever stands first
    await desk.click("Reset")
    await desk.sees("is closed.")


async def test_what_is_typed_stays_while_the_list_is_read_again_and_what_is_chosen_is_canceled(
    desk: Desk, api: aiohttp.ClientSession, failed: str
) -> None:
    await desk.open("#/jobs")
    await desk.until(row(failed))
    await desk.page.value("document.querySelector('.filters input').focus()")
    await desk.write("default")
    job = await plan(api)
    await desk.turn(hidden=False)
    await desk.until("document.querySelector('tr .badge').innerText === 'queued'")
    assert await desk.page.value("document.querySelector('.filters input').value") == "default"
    await desk.press("Enter")
    await desk.until("location.hash === '#/jobs?job_type=default'")
    await desk.page.value("location.hash = '#/jobs?status=queued&task=plan'")
    await desk.until("document.querySelectorAll('tbody tr').length === 1")
    await desk.click(f"Choose {job}")
    await desk.click("Cancel 1")
    await desk.sees(f"fetchbox jobs cancel {job}")
    await desk.click("Cancel 1")
    await desk.sees("1 job canceled.")
