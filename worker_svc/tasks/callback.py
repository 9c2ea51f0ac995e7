"""The handler `http`: a callback that does the task, in any language.

It is sent `POST {endpoint}` with `{"job_id": …, "task": …, "attempt": n, "payload": {…}}`; the payload is as submitted,
byte for byte, and `attempt` is the number of the attempt, from 1, as `X-Fetchbox-Attempt` is. `Idempotency-Key` is the
job's id, the same at every attempt: work may arrive twice. It answers with

- 200 and `application/json`: the result of the job; 204: the result is `null`;
- 200 and `application/x-ndjson` (or `text/event-stream`): a line (or event) for each
  `{"type": "progress" | "token" | "log" | a word of its own, "data": {…}}`, written to the job's events as they come,
  then `{"type": "result", "data": …}`, or
  `{"type": "error", "data": {"code": …, "message": …, "retryable": true | false}}`;
- any other status: a failure, `HANDLER_HTTP_{status}`, with the message in `{"error": {"message": …}}`; `Retry-After`
  is obeyed. 408, 409, 425, 429 and 5xx (but 501 and 505) are tried again.

`code` is one of FetchBox's failure codes, or any word: then `retryable` decides between `HANDLER_ERROR` (tried again)
and `VALIDATION_PAYLOAD` (not). When the job is canceled the connection is closed.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from kernel.handlers import TaskRun
from worker_svc.tasks.documents import parsed_result
from worker_svc.tasks.endpoint import EndpointHandler, ModelAnswer
from worker_svc.tasks.failures import connection, protocol, too_large
from worker_svc.tasks.lines import TooLongError
from worker_svc.tasks.messages import Messages, reader_of
from worker_svc.tasks.tokens import Tokens

_JSON: Final = "application/json"
_ACCEPT: Final = f"{_JSON}, application/x-ndjson, text/event-stream"


class CallbackHandler(EndpointHandler):
    """Runs `tool` and `rag`, and any task that is configured so."""

    async def run(self, payload: dict[str, Any], run: TaskRun) -> Any:
        """One request. TaskError `HANDLER_…` by what the endpoint did, or the failure that it told."""
        headers = {
            "accept": _ACCEPT,
            "idempotency-key": quote(run.job_id, safe=":"),
            "x-fetchbox-attempt": str(run.attempt),
        }
        async with self._endpoint.post(_envelope(payload, run), headers) as answer:
            if answer.status == 204:
                return None
            if answer.content_type == _JSON:
                return parsed_result(await answer.document(self._wire_limit, self.settings.max_result_bytes))
            return await self._follow(answer, run)

    async def _follow(self, answer: ModelAnswer, run: TaskRun) -> Any:
        """Writes what the callback tells until it tells the result."""
        reader = reader_of(answer.content_type, self._wire_limit)
        if reader is None:
            raise protocol(f"the endpoint sent {self._endpoint.words(answer.content_type)}, not one of {_ACCEPT}")
        tokens = Tokens(run)
        messages = Messages(run, tokens, self._endpoint.words)
        ended = False
        while not ended:
            piece = await tokens.next_piece(answer)
            ended = not piece
            try:
                told = reader.feed(piece) if piece else reader.end()
            except TooLongError as error:
                raise too_large(self.settings.max_result_bytes) from error
            for text in told:
                if await messages.take(text):
                    await tokens.flush()
                    await answer.end()
                    return messages.result
        raise connection("the endpoint hung up before it sent a result")


def _envelope(payload: dict[str, Any], run: TaskRun) -> bytes:
    about = json.dumps({"job_id": run.job_id, "task": run.task, "attempt": run.attempt})
    return b'%s, "payload": %s}' % (about[:-1].encode(), _payload_json(payload, run))


def _payload_json(payload: dict[str, Any], run: TaskRun) -> bytes:
    """The payload's own bytes, or `_raw` where they are no JSON object and would break the body that holds them."""
    if set(payload) == {"_raw"}:
        try:
            own = json.loads(run.payload_json)
        except (ValueError, RecursionError):
            own = None
        if own != payload:
            return json.dumps(payload).encode()
    return run.payload_json
