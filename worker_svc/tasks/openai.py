"""The handler `openai`: tasks for any endpoint that speaks OpenAI's protocol, a cloud's or a model on the own machine.

A job's payload is the body of the request, laid over the task's options. `embed` asks `/embeddings`; every other task
asks `/chat/completions` as a stream, whose text becomes `token` events while it comes and the job's result at the end.
A stream counts as whole once it has told a finish reason or `[DONE]`; without either its job is never done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kernel.handlers import TaskError, TaskRun, TaskSettings
from worker_svc.tasks.chat_request import chat_body, model_asked
from worker_svc.tasks.completion import Completion
from worker_svc.tasks.documents import encoded, parsed
from worker_svc.tasks.embeddings import embeddings_body, embeddings_result
from worker_svc.tasks.endpoint import Answer, EndpointHandler
from worker_svc.tasks.failures import connection, protocol, too_large
from worker_svc.tasks.lines import TooLongError
from worker_svc.tasks.refusal import within_stream
from worker_svc.tasks.sse import SseEvent, SseParser
from worker_svc.tasks.tokens import Tokens

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_DONE: Final = "[DONE]"
_TAIL_SECONDS: Final = 5.0
"""How long to wait, after the finish reason, for the usage and the end: neither is needed."""


class OpenAiHandler(EndpointHandler):
    """Runs `chat`, `plan`, `code` and `embed`; `tool` and `rag` too where they are configured so."""

    def __init__(self, settings: TaskSettings) -> None:
        self._embeds = settings.task == "embed"
        super().__init__(settings, "/embeddings" if self._embeds else "/chat/completions")

    def model_of(self, payload: Mapping[str, Any]) -> str:
        """The model that a payload asks for; empty for none."""
        return model_asked(payload, self.settings)

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        """One request. TaskError `HANDLER_…` by what the endpoint did, `VALIDATION_PAYLOAD` for a bad payload."""
        return await (self._embed(payload) if self._embeds else self._chat(payload, run))

    async def _embed(self, payload: dict[str, Any]) -> dict[str, Any]:
        body = embeddings_body(payload, self.settings)
        async with self._endpoint.post(encoded(body), {"accept": JSON}) as answer:
            return embeddings_result(await self._document(answer), body["input"])

    async def _chat(self, payload: dict[str, Any], run: TaskRun) -> dict[str, Any]:
        body = chat_body(payload, self.settings)
        completion = Completion(self.settings.max_result_bytes)
        tokens = Tokens(run)
        async with self._endpoint.post(encoded(body), {"accept": f"{EVENTS}, {JSON}"}) as answer:
            if answer.content_type == EVENTS:
                await self._listen(answer, completion, tokens)
            else:
                tokens.add(completion.take(await self._document(answer)))
            if not completion.started:
                raise protocol("the endpoint sent no completion")
            await tokens.flush()
        return completion.result()

    async def _document(self, answer: Answer) -> dict[str, Any]:
        if answer.content_type != JSON:
            raise protocol(f"the endpoint sent {self._endpoint.words(answer.content_type)}, not {JSON} or {EVENTS}")
        return self._object(await answer.document(self._wire_limit, self.settings.max_result_bytes))

    async def _listen(self, answer: Answer, completion: Completion, tokens: Tokens) -> None:
        """Reads a stream to its end; hung up or silent before it, that is the failure."""
        parser = SseParser(self._wire_limit)
        while piece := await self._next(answer, completion, tokens):
            for event in self._events(parser, piece):
                if event.data == _DONE:
                    await answer.end()
                    return
                tokens.add(completion.take(self._object(event.data)))
        if completion.finish_reason is None:
            raise connection("the endpoint hung up within its answer")

    async def _next(self, answer: Answer, completion: Completion, tokens: Tokens) -> bytes:
        if completion.finish_reason is None:
            return await tokens.next_piece(answer)
        try:
            return await tokens.next_piece(answer, _TAIL_SECONDS)
        except TaskError:
            return b""  # the text is whole

    def _events(self, parser: SseParser, piece: bytes) -> list[SseEvent]:
        try:
            return parser.feed(piece)
        except TooLongError as error:
            raise too_large(self.settings.max_result_bytes) from error

    def _object(self, raw: bytes | str) -> dict[str, Any]:
        document = parsed(raw)
        if not isinstance(document, dict):
            raise protocol("the endpoint sent JSON that is no object")
        if document.get("error"):
            raise within_stream(document["error"], self._endpoint.words)
        return document
