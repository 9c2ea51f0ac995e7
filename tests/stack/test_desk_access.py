"""Who gets to the operators' page, and what it says to who does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from cli.embedded.ports import free_ports
from cli.local import LocalPlatform
from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from gateway.bootstrap import build
from gateway.server import HttpServer
from tests.browser import Page
from tests.stack.desk import Desk
from tests.stack.desk_work import row, submit

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "the-token-of-an-operator"


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
    job = await submit(api, "gone", web.url("/status/410"))
    async with _gateway(platform, ui="read") as base:
        desk = Desk(tab, base)
        with desk.quiet():
            await desk.open("#/dead-letters")
            await desk.until(row(job))
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
