"""The operators' page in a real browser, before a platform that works and fails."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import redis.asyncio
from aiohttp import web

from cli.embedded.ports import free_ports
from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from gateway.bootstrap import build
from gateway.server import HttpServer
from tests import sse
from tests.browser import Page, chromium
from tests.stack import desk_views
from tests.stack.desk import Desk
from tests.stack.test_cli_files import NAMES, letter
from tests.stack.test_flow_pages import test_a_command_that_a_page_shows_is_one as is_command

pytestmark = pytest.mark.asyncio(loop_scope="module")
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
SEARCHING = "document.activeElement.id === 'search'"
TOKEN = "the-token-of-an-operator"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab(program: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    async with chromium(program, tmp_path_factory.mktemp("chromium")) as page:
        await page.look(1280)
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(platform: LocalPlatform) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://{platform.environ['FETCHBOX_GATEWAY_LISTEN']}") as http:
        yield http


@pytest_asyncio.fixture(loop_scope="module")
async def desk(tab: Page, platform: LocalPlatform) -> AsyncIterator[Desk]:
    page = Desk(tab, f"http://{platform.environ['FETCHBOX_GATEWAY_LISTEN']}")
    with page.quiet():
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def failed(api: aiohttp.ClientSession, web: SampleSite) -> str:
    """A fetch job whose resource failed for good, under a name that would run in a careless page."""
    return await _submit(api, HOSTILE, f"{web.url('/status/404')}?{HOSTILE}".replace(" ", "%20"))


async def _submit(api: aiohttp.ClientSession, resource: str, url: str) -> str:
    manifest = {"manifest_version": "v1", "resources": [{"id": resource, "url": url}]}
    made = await _post(api, "/jobs", manifest, **{"X-Fetchbox-Job-Type": "default"})
    await _ended(api, made["job_id"])
    return str(made["job_id"])


async def _post(api: aiohttp.ClientSession, path: str, body: Any, **headers: str) -> Any:
    async with api.post(path, json=body, headers=headers) as answer:
        assert answer.status in {200, 202}, await answer.text()
        return await answer.json()


async def _ended(api: aiohttp.ClientSession, job: str) -> None:
    async with api.get(f"/operators/jobs/{job}/events", headers=sse.ACCEPT) as stream:
        await stream.read()


async def _plan(api: aiohttp.ClientSession) -> str:
    """A task job that nobody but this test does."""
    return str((await _post(api, "/v1/jobs", {"task": "plan", "payload": {"prompt": HOSTILE}}))["job_id"])


async def _claim(api: aiohttp.ClientSession) -> str:
    body = {"kinds": ["plan"], "max_tasks": 1, "wait": "10s"}
    return str((await _post(api, "/workers/the-desk/tasks:claim", body))["tasks"][0]["claim"])


async def _report(api: aiohttp.ClientSession, claim: str, first: int, text: str) -> None:
    events = [{"type": "token", "data": {"text": text}}]
    await _post(api, "/workers/the-desk/tasks:report", {"claim": claim, "first": first, "events": events})


def _row(job: str) -> str:
    return f"document.querySelector('a[title=\"{job}\"]')?.closest('tr').innerText"


async def test_the_overview_shows_a_job_from_its_acceptance_to_its_end(desk: Desk, api: aiohttp.ClientSession) -> None:
    await desk.open()
    job = await _plan(api)
    await desk.until(f"{_row(job)}.includes('queued')")
    claim = await _claim(api)
    await _post(api, "/workers/the-desk/tasks:complete", {"claim": claim, "result": {"done": True}})
    await desk.until(f"{_row(job)}.includes('completed')")
    assert "Health" in await desk.text()


async def test_a_job_is_live_resumes_after_the_tab_was_hidden_and_is_canceled_by_a_click(
    desk: Desk, api: aiohttp.ClientSession
) -> None:
    job = await _plan(api)
    claim = await _claim(api)
    await desk.open(f"#/jobs/{job}")
    await _report(api, claim, 1, f"one {HOSTILE}")
    await desk.sees(f"one {HOSTILE}")
    await desk.turn(hidden=True)
    await desk.sees("paused while this tab is hidden")
    await _report(api, claim, 2, " two")
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
    await _ended(api, failed)
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
    run = (await _post(api, "/v1/flows", start))["flow"]["flowId"]
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


@asynccontextmanager
async def _gateway(platform: LocalPlatform, **changes: Any) -> AsyncIterator[str]:
    """Another gateway before the same services."""
    config = Config()
    config.CopyFrom(platform.config)
    config.gateway.listen = "127.0.0.1:0"
    config.gateway.ui = changes.get("ui", "full")
    config.gateway.operator = changes.get("operator", config.gateway.operator)
    config.security.operator_tokens.extend(changes.get("tokens", ()))
    service = await build(config)
    (http,) = service.duties
    assert isinstance(http, HttpServer)
    await service.start()
    try:
        yield f"http://127.0.0.1:{http.port}"
    finally:
        await service.stop()


async def test_a_token_is_asked_for_and_is_in_no_url_and_no_storage(tab: Page, platform: LocalPlatform) -> None:
    async with _gateway(platform, tokens=[TOKEN]) as base:
        desk = Desk(tab, base)
        with desk.quiet():
            await desk.open("#/jobs?status=failed")
            await desk.until("document.activeElement.id === 'token'")
            await desk.write("another")
            await desk.press("Enter")
            await desk.sees("does not know this token")
            await desk.page.value("document.getElementById('token').select()")
            await desk.write(TOKEN)
            await desk.press("Enter")
            await desk.until("document.querySelector('nav a[aria-current]')?.innerText === 'Jobs'")
            await desk.sees("on this page")
            asked = [url for url in tab.requests if "/operators/jobs" in url]
            kept = "JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie, location.href])"
            assert asked
            assert not [url for url in tab.requests if TOKEN in url]
            assert TOKEN not in await tab.value(kept)
            await desk.open("#/")
            await desk.sees("Sign in")


async def test_a_page_to_read_has_no_buttons_that_change_anything(
    tab: Page, platform: LocalPlatform, api: aiohttp.ClientSession, web: SampleSite
) -> None:
    job = await _submit(api, "gone", web.url("/status/410"))
    async with _gateway(platform, ui="read") as base:
        desk = Desk(tab, base)
        with desk.quiet():
            await desk.open("#/dead-letters")
            await desk.until(_row(job))
            assert "Purge" not in await desk.text()
            await desk.go("#/workers")
            await desk.sees("in use")
            assert not {"Pause", "Drain"} & set((await desk.text()).split())


async def test_an_error_says_what_to_do(tab: Page, platform: LocalPlatform) -> None:
    (port,) = free_ports(1)
    async with _gateway(platform, operator=f"127.0.0.1:{port}") as base:
        desk = Desk(tab, base)
        with desk.quiet():
            await desk.open("#/breakers")
            await desk.sees("A service does not answer.")
            await desk.sees("Try again")
            await desk.go("#/flows")
            await desk.until("document.querySelector('main table, main .empty')")
            await desk.go("#/jobs/none")
            await desk.sees("503 UNAVAILABLE")
    async with _gateway(platform) as base:
        desk = Desk(tab, base)
        with desk.quiet():
            await desk.open("#/jobs/none")
            await desk.sees("Check the id.")


async def test_it_works_below_the_path_of_a_proxy(tab: Page, platform: LocalPlatform) -> None:
    gateway = f"http://{platform.environ['FETCHBOX_GATEWAY_LISTEN']}"
    async with aiohttp.ClientSession(auto_decompress=False) as http, _stripping(http, gateway) as base:
        desk = Desk(tab, base)
        with desk.quiet():
            await tab.visit(f"{base}/ui")
            await desk.sees("Newest jobs")
            assert {url.split("/")[3] for url in tab.requests if url.startswith("http")} == {"box"}


@asynccontextmanager
async def _stripping(http: aiohttp.ClientSession, gateway: str) -> AsyncIterator[str]:
    """A proxy that serves a gateway below `/box`."""

    async def passed(request: web.Request) -> web.Response:
        path = request.raw_path.removeprefix("/box")
        async with http.get(
            f"{gateway}{path}", headers={"Accept": "application/json"}, allow_redirects=False
        ) as answer:
            kept = ("Content-Type", "Content-Encoding", "Location", "Content-Security-Policy")
            headers = {name: answer.headers[name] for name in kept if name in answer.headers}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    application = web.Application()
    application.router.add_get("/box/{rest:.*}", passed)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/box"
    finally:
        await runner.cleanup()


async def test_every_page_fits_a_phone_can_be_read_in_light_and_dark_and_shows_commands_that_exist(
    desk: Desk, api: aiohttp.ClientSession, web: SampleSite, tmp_path: Path
) -> None:
    job = await _submit(api, "a-long-name-" * 10, f"{web.url('/status/404')}?{'x' * 300}")
    run = (await _post(api, "/v1/flows", {"flow": "nap", "input": {}}))["flow"]["flowId"]
    lists = ["", "jobs", "dead-letters", "file-dead-letters", "queues", "workers", "breakers", "flows", "settings", "x"]
    await desk.open("#/nowhere")
    commands: set[str] = set()
    grounds = set()
    for place in [*lists, f"jobs/{job}", f"flows/{run}", "jobs/unknown", "flows/unknown"]:
        await desk.page.look(360, prefers_color_scheme="light")
        await desk.go(f"#/{place}")
        await desk.until("!document.querySelector('main').innerText.includes('Loading…')")
        assert await desk.page.value(desk_views.OUTSIDE) == [], place
        assert await desk.page.value("document.documentElement.scrollWidth <= innerWidth"), place
        assert await desk.page.value(desk_views.UNNAMED) == [], place
        for scheme in ("light", "dark"):
            await desk.page.look(360, prefers_color_scheme=scheme)
            ratios = await desk.page.value(desk_views.CONTRAST)
            assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}, (place, scheme)
            grounds.add(await desk.page.value("getComputedStyle(document.body).backgroundColor"))
        commands.update(
            await desk.page.value("[...document.querySelectorAll('.command code')].map(one => one.innerText)")
        )
    await desk.page.value(
        "document.querySelector('main').style.cssText = 'color: #999; background: #fff; width: 400px'"
    )
    assert await desk.page.value(desk_views.OUTSIDE), "what sticks out would be found"
    assert min((await desk.page.value(desk_views.CONTRAST)).values()) < 4.5, "and what is pale"
    await desk.page.look(1280)
    assert len(grounds) == 2
    assert len(commands) >= 12
    for command in commands:
        words = command.split()
        assert words.pop(0) == "fetchbox"
        is_command(words)


@pytest.mark.skipif(not AXE.exists(), reason="`make web` installs axe-core")
async def test_axe_finds_nothing(desk: Desk, failed: str) -> None:
    await desk.open("#/nowhere")
    await desk.page.value(AXE.read_text())
    rules = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']}"
    wrong = f"axe.run({rules}).then(found => found.violations.map(one => [one.id, one.nodes.map(node => node.html)]))"
    for place in ("", "jobs", "dead-letters", "queues", "workers", "breakers", "flows", "settings", f"jobs/{failed}"):
        await desk.go(f"#/{place}")
        await desk.until("!document.querySelector('main').innerText.includes('Loading…')")
        found = await desk.page.call("Runtime.evaluate", expression=wrong, awaitPromise=True, returnByValue=True)
        assert found["result"]["value"] == [], place


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
    await _submit(api, "flaky", web.url("/status/500"))
    await desk.open("#/workers")
    try:
        for name, state in (("Pause", "paused"), ("Resume", "running")):
            await desk.click(name)
            await desk.sees(f"fetchbox worker {name.lower()}")
            await desk.click(name)
            await desk.until(f"document.querySelector('main .badge').innerText === '{state}'")
    finally:
        await _post(api, "/workers:resume", {})
    await desk.go("#/breakers")
    await desk.sees("host:127.0.0.1:")
    await desk.click("Reset")
    await desk.sees("fetchbox breakers reset host:127.0.0.1:")
    await desk.click("Reset")
    await desk.sees("is closed.")


async def test_a_chosen_theme_wins_over_the_system_s(desk: Desk) -> None:
    await desk.open()
    await desk.page.look(1280, prefers_color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await desk.page.value(ground)
    choose = "document.querySelector('.theme select').value = '{}'; {}"
    change = "document.querySelector('.theme select').dispatchEvent(new Event('change', {bubbles: true}))"
    await desk.page.value(choose.format("dark", change))
    await desk.until("document.documentElement.dataset.theme === 'dark'")
    assert await desk.page.value(ground) != light
    await desk.page.value(choose.format("system", change))
    assert await desk.page.value(ground) == light


async def test_what_is_typed_stays_while_the_list_is_read_again_and_what_is_chosen_is_canceled(
    desk: Desk, api: aiohttp.ClientSession, failed: str
) -> None:
    await desk.open("#/jobs")
    await desk.until(_row(failed))
    await desk.page.value("document.querySelector('.filters input').focus()")
    await desk.write("default")
    job = await _plan(api)
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


async def test_times_are_the_reader_s_with_utc_on_hover(desk: Desk, failed: str) -> None:
    await desk.page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    await desk.open(f"#/jobs/{failed}")
    shown = await desk.until("[document.querySelector('dd time').innerText, document.querySelector('dd time').title]")
    await desk.page.call("Emulation.setTimezoneOverride", timezoneId="")
    local, utc = (re.search(r"(\d+):(\d\d):\d\d", one) for one in shown)
    assert local is not None
    assert utc is not None
    assert (int(local[2]) - int(utc[2])) % 60 == 30
    assert shown[1].endswith("UTC")


async def test_what_its_policy_forbids_would_be_seen(desk: Desk) -> None:
    await desk.open()
    run = "document.createElement('script').textContent = 'document.title = 1'"
    done = await desk.page.call("Runtime.evaluate", expression=run)
    assert "TrustedScript" in json.dumps(done["exceptionDetails"])
    await desk.page.value("document.body.setAttribute('style', 'color: red')")
    assert len(desk.page.complaints) >= 1
    desk.page.complaints.clear()
