"""Listens to the answer of a chat: its text becomes events while it comes, and its end says whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kernel.handlers import TaskError, TaskSettings
from worker_svc.tasks.choice import TEXT, Said
from worker_svc.tasks.chunks import Chunks
from worker_svc.tasks.completion import Completion
from worker_svc.tasks.endpoint import Answer
from worker_svc.tasks.failures import connection, protocol, silence, too_large
from worker_svc.tasks.finish_reasons import failure_of_reason
from worker_svc.tasks.foreign_protocols import foreign_protocol
from worker_svc.tasks.lines import TooLongError
from worker_svc.tasks.refusal import Words, within_answer
from worker_svc.tasks.tokens import TEXT_EVENT, Tokens
from worker_svc.tasks.told_errors import error_in

_TAIL_SECONDS: Final = 5.0
"""How long to wait, after the finish reason, for the usage and the end: neither is needed."""
_OPTIONAL: Final = "optional"
_CHOICES: Final = "choices"


class Listener:
    """Listens to one answer."""

    def __init__(
        self, answer: Answer, completion: Completion, tokens: Tokens, settings: TaskSettings, words: Words
    ) -> None:
        self._answer = answer
        self._completion = completion
        self._tokens = tokens
        self._settings = settings
        self._words = words
        self._objects = 0
        self._first_token = settings.first_token_timeout or settings.read_timeout

    async def listen(self, limit: int) -> None:
        """Until the answer is whole. TaskError for every other end; `limit` is the most bytes of one object."""
        chunks = Chunks(self._answer.content_type, limit, self._words, self._answer.charset)
        until = self._answer.waited + self._first_token
        while not chunks.done and (piece := await self._next(until)):
            if self._take(chunks.feed(piece)) or chunks.within:
                until = self._answer.waited + self._patience
        if chunks.done:
            await self._answer.end()
        else:
            if not self._completion.finished:
                self._answer.check_end()
            self._take(chunks.end())
        self._tell(self._completion.end())
        self._check(chunks)
        await self._tokens.flush()

    @property
    def _patience(self) -> float:
        """How long a piece of the answer may take to come. Comments are no pieces of it."""
        if self._completion.finished:
            return _TAIL_SECONDS
        return self._settings.read_timeout if self._completion.started else self._first_token

    async def _next(self, until: float) -> bytes:
        try:
            piece = await self._tokens.next_piece(self._answer, until - self._answer.waited)
        except TaskError:
            if self._completion.finished:
                return b""  # the text is whole
            raise
        if piece is None and not self._completion.finished:
            raise silence("the endpoint fell silent, or sent nothing but comments")
        return piece or b""

    def _take(self, objects: Iterator[dict[str, Any]]) -> bool:
        """Takes what came; whether anything of the answer was in it."""
        progressed = False
        try:
            for one in objects:
                self._objects += 1
                progressed = bool(one.get(_CHOICES)) or progressed
                self._take_object(one)
        except TooLongError as error:
            raise too_large(self._settings.max_result_bytes) from error
        except RecursionError:
            raise protocol("the endpoint sent JSON that is nested too deeply") from None
        return progressed

    def _take_object(self, one: dict[str, Any]) -> None:
        error = error_in(one, _CHOICES)
        if error is not None:
            raise within_answer(error, self._words, self._settings.max_retry_after)
        if _CHOICES not in one and (name := foreign_protocol(one)):
            raise protocol(f"the endpoint speaks {name}, and chat completions of OpenAI's were expected")
        self._tell(self._completion.take(one))
        for reason in self._completion.new_reasons():
            if (failure := failure_of_reason(reason)) is not None:
                raise failure

    def _tell(self, said: Iterator[Said]) -> None:
        for kind, piece in said:
            self._tokens.add(piece, TEXT_EVENT if kind == TEXT else kind)

    def _check(self, chunks: Chunks) -> None:
        """Whether the answer is whole."""
        if self._completion.finished or (self._completion.started and chunks.is_one_document(self._objects)):
            return
        said = f": {chunks.stray}" if chunks.stray else ""
        if not chunks.done and (self._completion.started or not self._objects):
            raise connection(f"the endpoint hung up within its answer{said}")
        if not self._completion.started:
            raise protocol(f"the endpoint sent no completion{said}")
        if self._settings.finish != _OPTIONAL:
            key = f'tasks.{self._settings.task}.finish = "optional" takes such an answer as whole'
            raise protocol(f"the endpoint ended its answer without a finish reason, so it may be cut: {key}{said}")
