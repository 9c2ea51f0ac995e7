"""`fetchbox breakers`: what is left alone for now, since it kept failing."""

from typing import Annotated

import grpc
import typer

from cli import channels
from cli.command import command, group
from cli.output import as_dict, out
from cli.problems import SOME_FAILED, USAGE, CommandError
from cli.settings import settings
from fetchbox.operator.v1.files_pb2 import Breaker
from fetchbox.operator.v1.operator_service_pb2 import ListBreakersRequest, ResetBreakerRequest
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

app = group("Show circuit breakers, and close them by hand.")
_KINDS = ("host:", "endpoint:", "task:", "queue:")
_BEGINNINGS = f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]}"
_WHERE = "`fetchbox breakers list` shows those that are not closed."


@command(app, "list")
def list_breakers(context: typer.Context) -> None:
    """List breakers that are not closed, then those with failures in their window.

    `fetchbox breakers list`
    """
    with channels.operator(settings(context)) as stub:
        answer = stub.ListBreakers(ListBreakersRequest())
    if out.json:
        out.document(as_dict(answer))
        return
    _table(list(answer.breakers))
    if not answer.breakers:
        out.note("all are closed, and none has seen a failure", "green")


@command(app)
def reset(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Names, as `breakers list` prints them.")],
) -> None:
    """Close breakers now, and forget their results. Exits with 1 when one of them is unknown.

    `fetchbox breakers reset host:example.org`

    `fetchbox breakers reset endpoint:http%3A%2F%2F127.0.0.1%3A11434%2Fv1:llama3.2`
    """
    for name in names:
        if not name.startswith(_KINDS):
            raise CommandError(f"{name!r} is no breaker: names begin with {_BEGINNINGS}", USAGE, hint=_WHERE)
    with channels.operator(settings(context)) as stub:
        known = {breaker.name for breaker in stub.ListBreakers(ListBreakersRequest()).breakers}
        answers, missing = _reset(stub, names)
    if out.json:
        out.document({"breakers": [as_dict(answer) for answer in answers]})
    else:
        _table(answers)
    for name in names:
        if name in missing:
            out.note(f"nothing is known of {name}; `fetchbox breakers list` shows those that have failed", "yellow")
        elif name not in known:
            out.note(f"{name} was closed before; `fetchbox breakers list` shows those that are not", "yellow")
    if missing:
        raise typer.Exit(SOME_FAILED)


def _reset(stub: OperatorServiceStub, names: list[str]) -> tuple[list[Breaker], list[str]]:
    """The breakers as they stand then, and the names of which nothing is known."""
    answers: list[Breaker] = []
    missing: list[str] = []
    for name in names:
        try:
            answers.append(stub.ResetBreaker(ResetBreakerRequest(name=name)))
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            missing.append(name)
    return answers, missing


def _table(breakers: list[Breaker]) -> None:
    columns = ("breaker", "state", "results", "failures", "retry after")
    rows = [(one.name, one.state, one.samples, one.failures, _wait(one.retry_after_seconds)) for one in breakers]
    out.table(columns, rows)


def _wait(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds else ""
