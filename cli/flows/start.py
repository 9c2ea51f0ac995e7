"""`fetchbox flows start`: a run begins, and the secrets of its gates are told."""

from typing import Annotated

import typer

from cli import channels
from cli.command import command
from cli.flows.facts import run_facts
from cli.flows.watch import watch_run
from cli.output import as_dict, out
from cli.payload import read_value
from cli.problems import repeatable
from cli.settings import Settings, settings
from fetchbox.flow.v1.flow_service_pb2 import StartFlowRequest, StartFlowResponse
from kernel.ids import uuid7

app = typer.Typer()
_UNKNOWN = {
    "NOT_FOUND": "`fetchbox --config FILE flows definitions` shows those of FILE; the servers need it too.",
}


@command(app)
def start(
    context: typer.Context,
    flow: Annotated[str, typer.Argument(help="The flow, a table [flows.NAME] of the servers' configuration.")],
    value: Annotated[
        str, typer.Option("--input", help="What it starts with: JSON; `@file` reads a file, `-` reads stdin.")
    ] = "",
    flow_id: Annotated[str, typer.Option("--id", help="The id of the run; default: as the flow says.")] = "",
    key: Annotated[str, typer.Option("--key", help="The same key and input always mean the same run.")] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A word to find it by; repeatable.")] = None,
    tenant: Annotated[str, typer.Option(help="The tenant, where the token does not say.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Go on as `flows watch` does.")] = False,
) -> None:
    """Start a flow run. The secrets of its gates are shown now and never again.

    With --json the first line is `{"flow": …, "secrets": […]}`; with --watch too, each line after it is a frame.

    Exit codes: 0 started (with --watch: completed), 1 failed or canceled, 2 wrong usage, 3 refused, 4 unavailable.

    `fetchbox flows start catalogue --input '{"resources": []}' --tag nightly --watch`

    `fetchbox flows start catalogue --input @input.json --id night-2026-11-28`
    """
    options = settings(context)
    request = StartFlowRequest(
        flow=flow,
        flow_id=flow_id,
        idempotency_key=key or ("" if flow_id else f"cli-{uuid7()}"),
        tags=tag or (),
        tenant=tenant,
    )
    if value:
        request.input = read_value(value, "--input")
    answer = _started(options, request)
    run = answer.flow.flow_id
    if out.json:
        out.document(as_dict(answer))
    elif watch:
        out.note(f"started {run}", "dim")
    else:
        out.facts(run_facts(answer.flow))
    _tell_secrets(answer)
    if watch:
        with channels.flows(options) as stub:
            watch_run(stub, run, answer.flow.tenant)
    else:
        out.note(f"`fetchbox flows watch {run}` shows what comes of it.")


def _started(options: Settings, request: StartFlowRequest) -> StartFlowResponse:
    option = ("--id", request.flow_id) if request.flow_id else ("--key", request.idempotency_key)
    with repeatable(option[1], option[0]), channels.flows(options, _UNKNOWN) as stub:
        return stub.StartFlow(request)


def _tell_secrets(answer: StartFlowResponse) -> None:
    """On stderr, so that what is piped or redirected holds none of them."""
    if not answer.secrets:
        return
    out.note("\nThe secrets of its gates. They are shown this once; FetchBox keeps only their hashes:")
    for told in answer.secrets:
        out.note(f"  {told.step_key}  {told.secret}", "bold")
    first, tenant = answer.secrets[0], answer.flow.tenant
    whose = f"?tenant={tenant}" if tenant else ""
    out.note(
        f"`fetchbox flows trigger {answer.flow.flow_id} {first.step_key} --secret …` opens a manual gate; "
        f"whoever posts a webhook to /v1/hooks/CHANNEL/KEY{whose} sends its secret as the header X-Fetchbox-Secret.\n"
    )
