"""How a fetch ends badly: one exception with a failure code, for every cause."""

from __future__ import annotations

from collections.abc import Mapping

from fetchbox.errors.v1.errors_pb2 import FailureCode
from kernel.errors import failure_name
from kernel.foreign_text import LONGEST, fit

Fact = str | int | float | bool
"""What a failure record may hold beside its message."""


class FetchFailure(Exception):  # noqa: N818 - a failure is the outcome of a task, not a fault of the program
    """One attempt failed, or could not be made.

    `code` is a failure name (`DOWNLOAD_TRUNCATED`, `DOWNLOAD_HTTP_403`); whether another attempt may help is
    `kernel.errors.is_retryable(code)`. `retry_after` is how many seconds the server asks to wait, already clamped
    to the configured limit. `counts` is False for a deferral: nothing was sent and no attempt was used. `facts` are for
    the failure record; like `message` they hold no secrets. `facts["fault"]` is `origin`, `proxy`, `store` or `task`,
    or `unclear` where the proxy or the origin may have made it; `facts["http_status"]` is that of the last answer.
    """

    def __init__(
        self,
        code: str,
        message: str,
        retry_after: float | None = None,
        facts: Mapping[str, Fact] | None = None,
        *,
        counts: bool = True,
    ) -> None:
        self.code = code
        self.message = fit(message)
        super().__init__(f"{code}: {self.message}")
        self.retry_after = retry_after
        self.facts: dict[str, Fact] = {
            name: fit(fact) if isinstance(fact, str) else fact for name, fact in (facts or {}).items()
        }
        self.counts = counts

    def add(self, text: str) -> None:
        """Says more in the end of the message, whatever is cut of its beginning."""
        more = fit(text, LONGEST // 2)
        self.message = f"{fit(self.message, LONGEST - len(more) - 3)} ({more})"
        self.args = (f"{self.code}: {self.message}",)


def failure(
    code: FailureCode.ValueType,
    message: str,
    *,
    http_status: int = 0,
    fault: str = "origin",
    facts: Mapping[str, Fact] | None = None,
) -> FetchFailure:
    """A failure by its code in `fetchbox.errors.v1`."""
    known: dict[str, Fact] = {"http_status": http_status} if http_status else {}
    return FetchFailure(failure_name(code, http_status), message, facts={"fault": fault, **known, **(facts or {})})


def deferral(code: FailureCode.ValueType, message: str, seconds: float) -> FetchFailure:
    """The host is not to be asked for so many seconds: the task waits outside, without using an attempt."""
    return FetchFailure(failure_name(code), message, seconds, {"fault": "origin"}, counts=False)
