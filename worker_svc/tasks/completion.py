"""A chat completion as it grows: chunks of a stream, or one document, become the result of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from worker_svc.tasks.choice import Choice, Said
from worker_svc.tasks.documents import well_formed
from worker_svc.tasks.failures import protocol, too_large
from worker_svc.tasks.json_numbers import whole_number
from worker_svc.tasks.kept_members import KeptMembers
from worker_svc.tasks.repeated_streams import RepeatedStreams

_ENVELOPE: Final = frozenset({"id", "object", "created", "model", "usage", "choices", "obfuscation", "error"})
"""Members of every chunk that are no part of a result, or have a place of their own in it."""
_OURS: Final = frozenset(
    {"text", "finish_reason", "model", "usage", "tool_calls", "function_call", "reasoning", "choices"}
)
_CHOICE_BYTES: Final = 64
_OTHER: Final = "other"
"""Where a member is kept whose name the result has for something else."""


class Completion:
    """One completion. Refuses to grow beyond `limit` bytes (TaskError `HANDLER_RESULT`)."""

    def __init__(self, limit: int, number: int = 1) -> None:
        """`number` is how many choices were asked for."""
        self._limit = limit
        self._number = number
        self._size = 0
        self._model: str | None = None
        self._usage = KeptMembers(joins=False)
        self._choices: dict[int, Choice] = {}
        self._first = 0
        self._open: set[int] = set()
        """The choices that have not told why they ended."""
        self._reasons: list[str] = []
        self._kept = KeptMembers(joins=False)
        self._repeated = RepeatedStreams()

    @property
    def started(self) -> bool:
        """Whether anything of a choice has come."""
        return bool(self._choices)

    @property
    def finished(self) -> bool:
        """Whether every choice has told why it ended."""
        return self.started and not self._open

    def new_reasons(self) -> list[str]:
        """The finish reasons that have come since the last call."""
        reasons, self._reasons = self._reasons, []
        return reasons

    def take(self, chunk: dict[str, Any]) -> Iterator[Said]:
        """Takes a chunk (`in_openais_form`), or a whole completion; gives what is new of the first choice.

        TaskError `HANDLER_PROTOCOL` for neither. A chunk without choices says something of the whole.
        """
        for one in self._repeated.new_of(chunk, finished=self.finished):
            yield from self._take(one)

    def _take(self, chunk: dict[str, Any]) -> Iterator[Said]:
        if isinstance(chunk.get("model"), str) and (chunk["model"] or self._model is None):
            self._model = well_formed(chunk["model"])
        self._usage.take({"usage": _usage(chunk)}, ())
        self._kept.take(chunk, _ENVELOPE)
        choices = chunk.get("choices")
        if choices is None:
            return
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise protocol("the endpoint sent a chunk whose choices are no list of objects")
        for index, choice in self._places(choices):
            known = self._choice(index)
            before = known.finish_reason
            yield from self._told(index, known.take(choice))
            if known.finish_reason is not None and known.finish_reason != before:
                self._open.discard(index)
                self._reasons.append(known.finish_reason)

    def end(self) -> Iterator[Said]:
        """No more comes."""
        for index, choice in self._choices.items():
            yield from self._told(index, choice.end())

    def broken_calls(self) -> list[str]:
        """The names of called tools whose arguments are no JSON."""
        return [name for choice in self._choices.values() for name in choice.calls.broken()]

    def oddities(self) -> Iterator[str]:
        """What is missing although the endpoint ended its answer well, for the log."""
        if len(self._choices) < self._number:
            yield f"the endpoint sent {len(self._choices)} of {self._number} choices"
        if any(choice.lacks_calls for choice in self._choices.values()):
            yield "the endpoint ended its answer with a call of a tool, and sent none"
        if any(choice.left_out for choice in self._choices.values()):
            yield "the endpoint sent text that repeats all before it; what it repeats was left out"

    def result(self) -> dict[str, Any]:
        """What the job returns: the first choice, and all of them as `choices` where there are several."""
        results = [self._choices[index].result() for index in sorted(self._choices)]
        result = {**results[0], "model": self._model, "usage": self._usage.result().get("usage")}
        if len(results) > 1:
            result["choices"] = results
        for name, value in self._kept.result().items():
            if name in _OURS or (name in result and result[name] != value):
                result.setdefault(_OTHER, {})[name] = value
            else:
                result[name] = value
        return result

    def _told(self, index: int, said: Iterator[Said]) -> Iterator[Said]:
        """What is told as events: the first choice alone. The others are taken all the same."""
        pieces = list(said)
        if index == self._first:
            yield from pieces

    def _places(self, choices: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each choice with its index; where indexes are missing, or alike though several were asked for, its place."""
        used: set[int] = set()
        for place, choice in enumerate(choices):
            index = whole_number(choice.get("index"))
            alike = index in used and (self._number > 1 or bool(choice.get("message")))
            if index is None or alike:
                index = place
            used.add(index)
            yield index, choice

    def _choice(self, index: int) -> Choice:
        known = self._choices.get(index)
        if known is None:
            known = self._choices[index] = Choice(self._count)
            self._first = min(self._choices) if len(self._choices) == 1 else min(self._first, index)
            self._open.add(index)
            self._count(_CHOICE_BYTES)
        return known

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise too_large(self._limit)


def _usage(chunk: dict[str, Any]) -> Any:
    """The usage, or that which Groq puts into a member of its own."""
    usage = chunk.get("usage")
    groq = chunk.get("x_groq")
    return usage if usage is not None or not isinstance(groq, dict) else groq.get("usage")
