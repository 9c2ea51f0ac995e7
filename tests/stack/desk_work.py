"""Work for the operators' page to show: jobs that fail, and jobs that nobody but a test does."""

import json
from typing import Any

import aiohttp

from tests import sse

HOSTILE = "<img src=x onerror=\"document.title='run'\">"


async def submit(api: aiohttp.ClientSession, resource: str, url: str) -> str:
    """A fetch job of one resource, once it has ended."""
    manifest = {"manifest_version": "v1", "resources": [{"id": resource, "url": url}]}
    made = await post(api, "/jobs", manifest, **{"X-Fetchbox-Job-Type": "default"})
    await ended(api, made["job_id"])
    return str(made["job_id"])


async def post(api: aiohttp.ClientSession, path: str, body: Any, **headers: str) -> Any:
    """The answer to a request that is granted."""
    async with api.post(path, json=body, headers=headers) as answer:
        assert answer.status in {200, 202}, await answer.text()
        return await answer.json()


async def ended(api: aiohttp.ClientSession, job: str) -> None:
    """Waits for the end of a job."""
    async with api.get(f"/operators/jobs/{job}/events", headers=sse.ACCEPT) as stream:
        await stream.read()


async def plan(api: aiohttp.ClientSession) -> str:
    """A task job that nobody but this test does."""
    return str((await post(api, "/v1/jobs", {"task": "plan", "payload": {"prompt": HOSTILE}}))["job_id"])


async def claim(api: aiohttp.ClientSession, job: str) -> str:
    """Claims such a job, and ends those that other tests have left before it."""
    body = {"kinds": ["plan"], "max_tasks": 1, "wait": "10s"}
    while True:
        (task,) = (await post(api, "/workers/the-desk/tasks:claim", body))["tasks"]
        if job in json.dumps(task):
            return str(task["claim"])
        await post(api, "/workers/the-desk/tasks:complete", {"claim": task["claim"], "result": {}})


async def report(api: aiohttp.ClientSession, claim: str, first: int, text: str) -> None:
    """Reports a token of its text; `first` counts from 1."""
    events = [{"type": "token", "data": {"text": text}}]
    await post(api, "/workers/the-desk/tasks:report", {"claim": claim, "first": first, "events": events})


def row(job: str) -> str:
    """The expression of what the row of a job shows."""
    return f"document.querySelector('a[title=\"{job}\"]')?.closest('tr').innerText"
