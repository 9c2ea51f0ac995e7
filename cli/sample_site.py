"""A web site on loopback with good and bad resources: for `fetchbox demo` and for tests.

Each path shows one thing that the web does to a downloader; `sha256` and `body` tell what a good one must give.
"""

import asyncio
import hashlib
import random
import struct
import zlib
from collections import Counter

from aiohttp import web

LARGE_BYTES = 9 * 1024 * 1024 + 1
"""More than one part of a multipart upload (8 MiB)."""

_JPEG = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912130f141d1a1f1e1d1a"
    "1c1c20242e2720222c231c1c2837292c30313434341f27393d38323c2e333432ffc0000b080001000101011100ffc4001f0000010501010101"
    "010100000000000000000102030405060708090a0bffc400b5100002010303020403050504040000017d010203000411051221314106135161"
    "07227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a53545556575859"
    "5a636465666768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6"
    "c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda0008010100003f00fbd2ffd9"
)


def png(shade: int, side: int = 16) -> bytes:
    """A real PNG image of one colour, which depends on the shade."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes([shade * 37 % 256, shade * 91 % 256, shade * 53 % 256]) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * side)) + chunk(b"IEND", b"")
    )


class SampleSite:
    """The site: an async context manager with `url(path)`, `body(path)`, `sha256(path)` and the count of `hits`."""

    def __init__(self, slow_seconds: float = 2.0) -> None:
        """`slow_seconds` is how long `/slow.txt` takes."""
        self.hits: Counter[str] = Counter()
        self.port = 0
        self._slow_seconds = slow_seconds
        self._large = random.Random(1).randbytes(LARGE_BYTES)  # noqa: S311  # the same bytes every time
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "SampleSite":
        application = web.Application()
        application.router.add_get("/images/{n:[0-9]+}.png", self._image)
        application.router.add_get("/photo.jpg", self._photo)
        application.router.add_get("/large.bin", self._large_file)
        application.router.add_get("/slow.txt", self._slow)
        application.router.add_get("/redirect", self._redirect)
        application.router.add_get("/truncated", self._truncated)
        application.router.add_get("/flaky.txt", self._flaky)
        application.router.add_get("/status/{code:[0-9]+}", self._status)
        application.router.add_get("/headers", self._headers)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        listener = web.TCPSite(self._runner, "127.0.0.1", 0)
        await listener.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def url(self, path: str) -> str:
        """The URL of a path."""
        return f"http://127.0.0.1:{self.port}{path}"

    def body(self, path: str) -> bytes:
        """The bytes that a download of the path must store."""
        if path.startswith("/images/"):
            return png(int(path.removeprefix("/images/").removesuffix(".png")))
        others = {
            "/photo.jpg": _JPEG,
            "/large.bin": self._large,
            "/slow.txt": b"slow" * 10,
            "/redirect": png(1),
            "/flaky.txt": b"third time lucky",
        }
        return others[path]

    def sha256(self, path: str) -> str:
        """The digest of `body(path)`, 64 hex digits."""
        return hashlib.sha256(self.body(path)).hexdigest()

    async def _image(self, request: web.Request) -> web.Response:
        self.hits[request.path] += 1
        return web.Response(body=self.body(request.path), content_type="image/png")

    async def _photo(self, request: web.Request) -> web.Response:
        self.hits[request.path] += 1
        return web.Response(body=_JPEG, content_type="image/jpeg")

    async def _large_file(self, request: web.Request) -> web.Response:
        self.hits[request.path] += 1
        return web.Response(body=self._large, content_type="application/octet-stream")

    async def _slow(self, request: web.Request) -> web.StreamResponse:
        self.hits[request.path] += 1
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Content-Length": "40"})
        await response.prepare(request)
        for _ in range(10):
            await response.write(b"slow")
            await asyncio.sleep(self._slow_seconds / 10)
        return response

    async def _redirect(self, request: web.Request) -> web.Response:
        self.hits[request.path] += 1
        return web.Response(status=302, headers={"Location": "/images/1.png"})

    async def _truncated(self, request: web.Request) -> web.StreamResponse:
        """Promises 1,000 bytes, sends 10 and hangs up."""
        self.hits[request.path] += 1
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"only this.")
        if request.transport is not None:
            request.transport.close()
        return response

    async def _flaky(self, request: web.Request) -> web.Response:
        """Fails twice with 503, then works."""
        self.hits[request.path] += 1
        if self.hits[request.path] % 3:
            return web.Response(status=503, headers={"Retry-After": "0"})
        return web.Response(body=self.body(request.path), content_type="text/plain")

    async def _status(self, request: web.Request) -> web.Response:
        self.hits[request.path] += 1
        return web.Response(status=int(request.match_info["code"]), text="as asked")

    async def _headers(self, request: web.Request) -> web.Response:
        self.hits[request.path] += 1
        return web.json_response(dict(request.headers))
