"""The handler `openai`: tasks for any endpoint that speaks OpenAI's protocol, a cloud's or a model on the own machine.

A job's payload is the body of the request, laid over the task's options. `embed` asks `/embeddings`; every other task
asks `/chat/completions` as a stream, whose text becomes `token` events while it comes and the job's result at the end.
A stream counts as whole once it has told a finish reason; without one its job is done only where the task is configured
with `finish = "optional"` and the stream has told `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kernel.handlers import TaskRun, TaskSettings
from worker_svc.tasks.chat_request import chat_body, model_asked
from worker_svc.tasks.chunks import EVENTS
from worker_svc.tasks.completion import Completion
from worker_svc.tasks.documents import encoded
from worker_svc.tasks.embedding_codings import coding_asked
from worker_svc.tasks.embeddings import Embeddings, embeddings_body, read_document
from worker_svc.tasks.endpoint import EndpointHandler
from worker_svc.tasks.json_numbers import whole_number
from worker_svc.tasks.listener import Listener
from worker_svc.tasks.refusal import within_answer
from worker_svc.tasks.tokens import Tokens
from worker_svc.tasks.told_errors import error_in

JSON: Final = "application/json"


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
        return await (self._embed(payload, run) if self._embeds else self._chat(payload, run))

    async def _embed(self, payload: dict[str, Any], run: TaskRun) -> dict[str, Any]:
        body = embeddings_body(payload, self.settings)
        async with self._endpoint.post(encoded(body), {"accept": JSON}) as answer:
            raw = await answer.document(self._wire_limit, self.settings.max_result_bytes)
        document = self._checked(read_document(raw, self._endpoint.words(answer.content_type)))
        embeddings = Embeddings(document, body["input"], whole_number(body.get("dimensions")), coding_asked(body))
        if embeddings.warning:
            await run.log(embeddings.warning, level="warn")
        return embeddings.result()

    def _checked(self, document: Any) -> Any:
        """The document, unless it tells an error."""
        told = document[0] if isinstance(document, list) and document else document
        error = error_in(told, "data") if isinstance(told, dict) else None
        if error is not None:
            raise within_answer(error, self._endpoint.words, self.settings.max_retry_after)
        return document

    async def _chat(self, payload: dict[str, Any], run: TaskRun) -> dict[str, Any]:
        body = chat_body(payload, self.settings)
        completion = Completion(self.settings.max_result_bytes, body.get("n") or 1)
        async with self._endpoint.post(encoded(body), {"accept": f"{EVENTS}, {JSON}"}) as answer:
            listener = Listener(answer, completion, Tokens(run), self.settings, self._endpoint.words)
            await listener.listen(self._wire_limit)
        for name in completion.broken_calls():
            await run.log("the arguments of a tool call are no JSON", level="warn", tool=name)
        for oddity in (*completion.oddities(), *listener.oddities()):
            await run.log(oddity, level="warn")
        return completion.result()
