"""What opens the gates of runs, and what closes them for good: `flows trigger`, `cancel-gate` and `publish`."""

from typing import Annotated

import typer

from cli import channels
from cli.command import command
from cli.flows.arguments import Run, StepKey, Tenant
from cli.flows.facts import gate_facts
from cli.output import as_dict, out
from cli.payload import read_value
from cli.settings import settings
from fetchbox.flow.v1.flow_pb2 import Gate
from fetchbox.flow.v1.flow_service_pb2 import CancelGateRequest, PublishEventRequest, TriggerGateRequest

app = typer.Typer()
_SECRETS = {"FORBIDDEN": "A gate is opened with its secret (--secret), or by an operator."}
_KINDS = {"FORBIDDEN": "Publish a kind of your own, for the tenant of your token."}


@command(app)
def trigger(
    context: typer.Context,
    run: Run,
    step: StepKey,
    secret: Annotated[
        str,
        typer.Option(envvar="FETCHBOX_GATE_SECRET", help="What opens the gate; an operator needs none."),
    ] = "",
    payload: Annotated[
        str, typer.Option(help="What the step gets to know: JSON; `@file` reads a file, `-` reads stdin.")
    ] = "",
    tenant: Tenant = "",
) -> None:
    """Open a gate by hand. A trigger before its gate is placed is kept, and opens it then. Repetition is safe.

    `fetchbox flows trigger 01939c6e-… publish --payload '{"by": "Ada"}'`

    `FETCHBOX_GATE_SECRET=… fetchbox flows trigger 01939c6e-… publish`
    """
    request = TriggerGateRequest(flow_id=run, step_key=step, secret=secret, tenant=tenant)
    if payload:
        request.payload = read_value(payload, "--payload")
    with channels.flows(settings(context), _SECRETS) as stub:
        gate = stub.TriggerGate(request)
    _show(gate)
    if gate.state == "expected":
        out.note("The gate is not placed yet; it opens as soon as it is.")


@command(app)
def cancel_gate(context: typer.Context, run: Run, step: StepKey, tenant: Tenant = "") -> None:
    """Cancel a gate: its step fails, and with it the run.

    `fetchbox flows cancel-gate 01939c6e-… publish`
    """
    with channels.flows(settings(context)) as stub:
        _show(stub.CancelGate(CancelGateRequest(flow_id=run, step_key=step, tenant=tenant)))


@command(app)
def publish(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help="What happened, for instance `order.paid`.")],
    key: Annotated[str, typer.Option(help="Which one of its kind; gates wait for kind and key.")] = "",
    data: Annotated[str, typer.Option(help="What belongs to it: JSON; `@file` reads a file, `-` reads stdin.")] = "",
    tenant: Annotated[str, typer.Option(help="Whose gates are meant, where the token does not say.")] = "",
) -> None:
    """Publish an event. It opens the gates that wait for its kind and key, or is kept for the next one.

    `fetchbox flows publish order.paid --key 7 --data '{"amount": 12}'`
    """
    request = PublishEventRequest(key=key, tenant=tenant)
    request.event.kind = kind
    if data:
        request.event.data = read_value(data, "--data")
    with channels.flows(settings(context), _KINDS) as stub:
        answer = stub.PublishEvent(request)
    if out.json:
        out.document(as_dict(answer))
        return
    out.facts({"kind": kind, "key": key, "gates opened": answer.released, "kept": "yes" if answer.parked else "no"})
    if answer.parked:
        out.note("No gate waits for it now; the next one for this kind and key finds it.")


def _show(gate: Gate) -> None:
    if out.json:
        out.document(as_dict(gate))
    else:
        out.facts(gate_facts(gate))
