"""An HTTP server on loopback that speaks OpenAI's protocol, and misbehaves exactly as it is told."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

Script = Callable[[web.Request], Awaitable[web.StreamResponse]]
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}


@dataclass
class Seen:
    """One request as it came."""

    path: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class ModelServer:
    """Answers each request with the next of `answers`, or a model's own answer where there is none."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answers: list[Script] = []
        self.api_key = ""
        self.gone = asyncio.Event()
        """Set when a client has left an answer that went on."""
        self.answered = asyncio.Event()
        """Set when an answer has been written to its end."""

    async def __aenter__(self) -> "ModelServer":
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def url(self, path: str = "/v1") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def then(self, *scripts: Script) -> None:
        self.answers.extend(scripts)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(Seen(request.path_qs, request.headers, await request.read()))
        script = self.answers.pop(0) if self.answers else self._model
        try:
            answer = await script(request)
        except asyncio.CancelledError:
            self.gone.set()
            raise
        self.answered.set()
        return answer

    async def _model(self, request: web.Request) -> web.StreamResponse:
        """What a model does: it repeats what it was told, word by word."""
        body = self.seen[-1].body
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            error = {"message": f"Incorrect API key provided: {request.headers.get('authorization')}"}
            return await document({"error": error}, status=401)(request)
        if request.path.endswith("/embeddings"):
            return await document(embeddings(body))(request)
        words = body["messages"][-1]["content"].split(" ")
        pieces = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
        usage = USAGE if body.get("stream_options", {}).get("include_usage") else None
        return await stream(completion(pieces, model=body.get("model", "none"), usage=usage))(request)


def chunk(content: str | None = None, *, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One chunk of a completion."""
    delta = {"content": content, **delta} if content is not None else delta
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "model": "parrot", "choices": [choice]}


def sse(*values: Any, end: str = "\n") -> bytes:
    """Values as events; a text is sent as it is."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
    return "".join(f"data: {text}{end}{end}" for text in texts).encode()


def completion(pieces: Sequence[str], *, model: str = "parrot", usage: Any = USAGE) -> bytes:
    """A whole stream."""
    chunks = [chunk("", role="assistant"), *(chunk(piece) for piece in pieces), chunk(finish="stop")]
    if usage is not None:
        chunks.append({**chunk(), "choices": [], "usage": usage})
    return sse(*({**one, "model": model} for one in chunks), "[DONE]")


def embeddings(body: Any) -> dict[str, Any]:
    """Vectors that tell their texts apart, last one first."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    data = [{"object": "embedding", "index": n, "embedding": [float(n), float(len(t))]} for n, t in enumerate(texts)]
    return {"object": "list", "data": data[::-1], "model": body.get("model"), "usage": {"total_tokens": 4}}


def document(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Script:
    """One JSON document, or bytes as they are."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()

    async def script(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"Content-Type": "application/json", **(headers or {})})

    return script


def stream(*pieces: bytes, content_type: str = "text/event-stream", end: str = "whole") -> Script:
    """Bytes, each piece a chunk of its own. `end` is `whole`, `hang up` or `silence`."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if end == "silence":
            await asyncio.Event().wait()
        if end == "hang up":
            assert request.transport is not None
            request.transport.close()
        return response

    return script


async def slam(request: web.Request) -> web.StreamResponse:
    """No answer: the connection is closed."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
