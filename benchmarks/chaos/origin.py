"""The web site that is fetched: what it serves follows from the path alone, so anyone can check what was stored."""

from hashlib import sha256
from random import Random

from aiohttp import web

ABSENT_EVERY = 97
"""One resource in so many is a 404: it must be counted as failed, exactly."""


def body(job: int, resource: int) -> bytes:
    """The content of one resource, 200 to 6,000 bytes."""
    random = Random(f"{job}/{resource}")
    return random.randbytes(random.randint(200, 6000))


def is_absent(resource: int) -> bool:
    """Whether the site answers 404."""
    return resource % ABSENT_EVERY == 13


def digest(job: int, resource: int) -> str:
    """The SHA-256 that the stored object must have."""
    return sha256(body(job, resource)).hexdigest()


async def _serve(request: web.Request) -> web.Response:
    job, resource = int(request.match_info["job"]), int(request.match_info["resource"])
    if is_absent(resource):
        raise web.HTTPNotFound
    return web.Response(body=body(job, resource), content_type="application/octet-stream")


async def start() -> tuple[web.AppRunner, str]:
    """Serves on a free port of loopback; the caller cleans the runner up."""
    app = web.Application()
    app.router.add_get("/{job:[0-9]+}/{resource:[0-9]+}", _serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"
