"""Listens to the answer of a chat: its text becomes events while it comes, and its end says whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kernel.handlers import TaskError, TaskSettings
from worker_svc.tasks.choice import TEXT, Said
from worker_svc.tasks.chunks import Chunks
from worker_svc.tasks.completion import Completion
from worker_svc.tasks.endpoint import ModelAnswer
from worker_svc.tasks.failures import connection, protocol, silence, too_large
from worker_svc.tasks.finish_reasons import failure_of_reason
from worker_svc.tasks.foreign_protocols import foreign_protocol
from worker_svc.tasks.lines import TooLongError
from worker_svc.tasks.openai_form import in_openais_form, is_of_stream
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
        self, answer: ModelAnswer, completion: Completion, tokens: Tokens, settings: TaskSettings, words: Words
    ) -> None:
        self._answer = answer
        self._completion = completion
        self._tokens = tokens
        self._settings = settings
        self._words = words
        self._objects = 0
        self._streams = False
        """Whether what came is part of a stream."""
        self._stray = ""
        self._failure: TaskError | None = None
        """Why no more comes, where it is not the end of the body."""
        self._first_token = settings.first_token_timeout or settings.read_timeout

    async def listen(self, limit: int) -> None:
        """Until the answer is whole. TaskError for every other end; `limit` is the most bytes of one object."""
        chunks = Chunks(self._answer.content_type, limit, self._words, self._answer.charset)
        until = self._answer.waited + self._first_token
        while not chunks.done and (piece := await self._next(until)):
            finished = self._completion.finished
            progressed = self._take(chunks.feed(piece)) or (chunks.within and not finished)
            if progressed or finished != self._completion.finished:
                until = self._answer.waited + self._patience
        if chunks.done:
            await self._answer.end()
        else:
            self._end(chunks)
        self._tell(self._completion.end())
        self._check(chunks)
        await self._tokens.flush()

    def oddities(self) -> Iterator[str]:
        """What came that is no part of an answer, for the log."""
        if self._stray:
            yield f"the endpoint sent among its events what is none: {self._stray}"

    def _end(self, chunks: Chunks) -> None:
        """No more comes. What is held may be whole although the end of its line, or of the body, has not come."""
        if self._failure is None and not self._completion.finished:
            self._answer.check_end()
        try:
            self._take(chunks.end())
        except TaskError:
            if self._failure is None:
                raise
        if self._failure is not None and not self._completion.finished:
            raise self._failure

    @property
    def _patience(self) -> float:
        """How long a piece of the answer may take to come. Comments are no pieces of it."""
        if self._completion.finished:
            return _TAIL_SECONDS
        return self._settings.read_timeout if self._completion.started else self._first_token

    async def _next(self, until: float) -> bytes:
        try:
            piece = await self._tokens.next_piece(self._answer, until - self._answer.waited)
        except TaskError as error:
            self._failure = error
            return b""
        if piece is None:
            self._failure = silence("the endpoint fell silent, or sent nothing but comments")
        return piece or b""

    def _take(self, objects: Iterator[dict[str, Any]]) -> bool:
        """Takes what came; whether anything of the answer was in it. After its end, nothing but text is."""
        progressed = False
        try:
            for one in objects:
                self._objects += 1
                finished = self._completion.finished
                said = self._take_object(one)
                progressed = progressed or said or (bool(one.get(_CHOICES)) and not finished)
        except TooLongError as error:
            raise too_large(self._settings.max_result_bytes) from error
        except RecursionError:
            raise protocol("the endpoint sent JSON that is nested too deeply") from None
        return progressed

    def _take_object(self, one: dict[str, Any]) -> bool:
        """Whether it said a text."""
        chunk = in_openais_form(one)
        error = error_in({**one, **chunk}, _CHOICES)
        if error is not None:
            raise within_answer(error, self._words, self._settings.max_retry_after)
        if _CHOICES not in one and (name := foreign_protocol(one)):
            raise protocol(f"the endpoint speaks {name}, and chat completions of OpenAI's were expected")
        self._streams = self._streams or is_of_stream(chunk)
        said = self._tell(self._completion.take(chunk))
        for reason in self._completion.new_reasons():
            if (failure := failure_of_reason(reason, self._words)) is not None:
                raise failure
        return said

    def _tell(self, said: Iterator[Said]) -> bool:
        """Whether anything was said."""
        told = False
        for kind, piece in said:
            self._tokens.add(piece, TEXT_EVENT if kind == TEXT else kind)
            told = True
        return told

    def _is_document(self, chunks: Chunks) -> bool:
        """Whether all came as one document, which needs no finish reason."""
        return chunks.is_one_document(self._objects) and not self._streams

    def _check(self, chunks: Chunks) -> None:
        """Whether the answer is whole."""
        self._stray = chunks.stray
        if self._completion.finished or (self._is_document(chunks) and self._completion.started):
            return
        said = f": {chunks.stray}" if chunks.stray else ""
        if not chunks.done and (self._completion.started or not self._objects):
            raise connection(f"the endpoint hung up within its answer{said}")
        if not self._completion.started:
            raise protocol(f"the endpoint sent no completion{said}")
        if self._settings.finish != _OPTIONAL:
            key = f'tasks.{self._settings.task}.finish = "optional" takes such an answer as whole'
            raise protocol(f"the endpoint ended its answer without a finish reason, so it may be cut: {key}{said}")
