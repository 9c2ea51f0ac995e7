"""The client in a browser, on a page of another origin: the gateway dies in mid-stream."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.local import LocalPlatform
from cli.serve import Role
from fetchbox_client import Client
from tests.browser import Page, chromium
from tests.clients.conftest import OPERATOR
from tests.clients.origins import Origin
from tests.clients.remote import RemoteWorker

PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>watch</title>
<script type="module">
import { Client } from "/index.js";
window.seen = [];
window.problem = "";
const client = new Client("%(gateway)s", { token: "%(token)s" });
try {
  for await (const event of client.jobs.watch("%(job)s")) window.seen.push(event.data?.text ?? event.type);
  window.result = await client.jobs.result("%(job)s");
  await client.jobs.get("none").catch((error) => { window.reason = error.reason; });
} catch (error) {
  window.problem = String(error);
}
</script>"""


async def _until(page: Page, script: str, holds: Callable[[Any], bool]) -> Any:
    """The value of a script, once it is as it should be."""
    async with asyncio.timeout(60):
        while not holds(value := await page.value(script)):
            assert await page.value("window.problem ?? ''") == "", await page.value("window.problem")
            await asyncio.sleep(0.02)
    return value


@pytest.mark.usefixtures("node")
async def test_a_page_of_another_origin_watches_a_job_across_the_death_of_the_gateway(
    program: str,
    client: Client,
    platform_up: LocalPlatform,
    worker: RemoteWorker,
    page_origin: Origin,
    tmp_path: Path,
) -> None:
    job = client.jobs.create("tool", {})
    claim = worker.claim(job.job_id)
    gateway = f"http://{platform_up.config.gateway.listen}"
    page_origin.pages["/page.html"] = PAGE % {"gateway": gateway, "token": OPERATOR, "job": job.job_id}
    async with chromium(program, tmp_path) as page:
        await page.visit(f"{page_origin.url}/page.html")
        claim.tokens("1", "2", "3")
        await _until(page, "JSON.stringify(window.seen ?? [])", lambda seen: json.loads(seen)[-1:] == ["3"])
        child = platform_up.roles[Role.GATEWAY]
        child.kill9()
        claim.tokens("4", "5")
        child.launch()
        claim.complete("end")
        seen = await _until(page, "JSON.stringify(window.seen)", lambda seen: json.loads(seen)[-1:] == ["done"])
        assert json.loads(seen) == ["hello", "queued", "running", "1", "2", "3", "4", "5", "done"]
        assert await _until(page, "window.reason ?? ''", bool) == "NOT_FOUND"
        assert await page.value("window.result") == "end"
        assert {url.rsplit("/", 1)[0] for url in page.requests} >= {page_origin.url, f"{gateway}/v1/jobs"}
