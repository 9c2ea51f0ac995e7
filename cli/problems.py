"""What went wrong, told so that one knows what to do next, and as an exit code that scripts can use."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Self

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from rich.table import Table
from rich.text import Text

from cli.found_data import where_to_look
from cli.output import out, shown, stderr
from fetchbox.operator.v1.operator_service_pb2 import HealthReport

if TYPE_CHECKING:
    from kernel.errors import FetchboxError

SOME_FAILED = 1
USAGE = 2
REFUSED = 3
UNAVAILABLE = 4

_DOWN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DATA_LOSS,
}
_HINTS = {
    "UNAUTHORIZED": "Give a token with --token or FETCHBOX_TOKEN.",
    "FORBIDDEN": "Use the token of an operator, or of the tenant you name.",
    "UNSUPPORTED_JOB_TYPE": "Configure it under [job_types.<name>], or use --job-type default.",
    "IDEMPOTENCY_CONFLICT": "This key was used with another request: use another --idempotency-key.",
    "PAYLOAD_TOO_LARGE": "Split it into several.",
    "RATE_LIMITED": "Wait and try again.",
    "UNAVAILABLE": "`fetchbox health` shows what is down.",
    "NOT_FOUND": "`fetchbox jobs list` shows the jobs there are.",
}


@dataclass
class CommandError(Exception):
    """Ends the command: `message` says what, `hint` what to do next."""

    message: str
    exit_code: int
    reason: str = ""
    hint: str = ""
    violations: Sequence[tuple[str, str]] = ()
    report: HealthReport | None = None
    retry_after: float | None = None

    def __str__(self) -> str:
        return self.message

    def with_hint(self, hints: Mapping[str, str] | None = None) -> Self:
        """Itself, with the next step that its reason calls for; `hints` go before those for every service."""
        known = {**_HINTS, **(hints or {})}
        self.hint = f"Try again in {ceil(self.retry_after)} s." if self.retry_after else known.get(self.reason, "")
        return self

    def show(self) -> None:
        """Prints it on stderr, as JSON where that was asked for."""
        if out.json:
            stderr().print_json(data={"error": self._as_dict()}, indent=None)
            return
        console = stderr()
        title = Text.assemble(("error", "bold red"), ": ", (f"{self.reason}: " if self.reason else "", "bold"))
        console.print(title + shown(self.message), soft_wrap=True)
        told = len(self.violations) == 1 and self.message.endswith(": ".join(self.violations[0]))
        if told:
            pass  # the title says it all
        elif self.violations and console.is_terminal:
            table = Table("where", "what", header_style="bold")
            for where, what in self.violations:
                table.add_row(shown(where, overflow="fold"), shown(what, overflow="fold"))
            console.print(table)
        elif self.violations:
            for where, what in self.violations:
                console.print(shown(f"  {where}: {what}"), soft_wrap=True)
        if self.hint:
            console.print(Text.assemble(("next", "bold cyan"), ": ", shown(self.hint)), soft_wrap=True)

    def _as_dict(self) -> dict[str, object]:
        return {
            "reason": self.reason,
            "message": self.message,
            "exit_code": self.exit_code,
            "hint": self.hint,
            "violations": [{"field": where, "description": what} for where, what in self.violations],
        }


@contextmanager
def translated(service: str, address: str, hints: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turns gRPC errors of the calls inside into a `CommandError`; `hints`: reason -> what to do next."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc(error, service, address, hints) from error


@contextmanager
def repeatable(key: str, option: str = "--idempotency-key") -> Iterator[None]:
    """Tells how to repeat a call whose outcome is unknown without making a second job; `option` takes the key."""
    try:
        yield
    except CommandError as error:
        if error.exit_code == UNAVAILABLE:
            error.hint = f"{error.hint} Then repeat it safely with {option} {key}".strip()
        raise


def from_rpc(error: grpc.RpcError, service: str, address: str, hints: Mapping[str, str] | None = None) -> CommandError:
    """The problem that an RPC ended with."""
    code = error.code()
    status = _status(error)
    if status is None:
        return _unanswered(code, error.details() or "", service, address)
    problem = CommandError(status.message, UNAVAILABLE if code in _DOWN else REFUSED, code.name)
    for packed in status.details:
        info, bad, retry, report = ErrorInfo(), BadRequest(), RetryInfo(), HealthReport()
        if packed.Unpack(info):
            problem.reason = info.reason
        elif packed.Unpack(bad):
            problem.violations = [(broken.field, broken.description) for broken in bad.field_violations]
        elif packed.Unpack(retry):
            problem.retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        elif packed.Unpack(report):
            problem.report = report
    return problem.with_hint(hints)


def from_kernel(error: "FetchboxError", hint: str) -> CommandError:
    """The problem that a call of the kernel in this process ended with; `hint` is for a server that does not answer."""
    from kernel.errors import mapping, reason_name  # noqa: PLC0415  # only commands that use the kernel come here

    down = mapping(error.reason).http_status >= HTTPStatus.INTERNAL_SERVER_ERROR
    violations = tuple((broken.field, broken.description) for broken in error.violations)
    reason = reason_name(error.reason)
    return CommandError(error.message, UNAVAILABLE if down else REFUSED, reason, hint if down else "", violations)


def _unanswered(code: grpc.StatusCode, details: str, service: str, address: str) -> CommandError:
    if code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED
        return CommandError(
            f"the {service} service at {address} {'took too long' if late else 'cannot be reached'}",
            UNAVAILABLE,
            "UNAVAILABLE",
            where_to_look(f"say where it is: --{service} HOST:PORT or FETCHBOX_{service.upper()}"),
        )
    return CommandError(
        f"{address} answered {code.name}: {details}",
        UNAVAILABLE if code in _DOWN else REFUSED,
        code.name,
        f"Is that a FetchBox {service} service?" if code is grpc.StatusCode.UNIMPLEMENTED else "",
    )


def _status(error: grpc.RpcError) -> Status | None:
    metadata: Iterable[tuple[str, bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]  # pairs
    packed = dict(metadata).get("grpc-status-details-bin")
    try:
        return Status.FromString(packed) if packed else None
    except DecodeError:
        return None
