"""`fetchbox flows`: looking at runs, following them, and cancelling them."""

from enum import StrEnum
from typing import Annotated

import typer

from cli import channels
from cli.command import command, group
from cli.flows import definitions, gates, start
from cli.flows.arguments import Run, StepKey, Tenant
from cli.flows.facts import RUN_COLUMNS, STEP_COLUMNS, run_facts, run_row, step_row
from cli.flows.watch import watch_run
from cli.flows.words import line
from cli.output import as_dict, out
from cli.settings import settings
from fetchbox.flow.v1.flow_pb2 import Flow
from fetchbox.flow.v1.flow_service_pb2 import CancelFlowRequest, GetFlowRequest, ListFlowsRequest, ListStepLogsRequest

app = group("Start flow runs, follow them, open their gates, cancel them.")
for others in (start.app, gates.app, definitions.app):
    app.add_typer(others)
_PAGE = 500


class Status(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@command(app)
def watch(context: typer.Context, run: Run, tenant: Tenant = "") -> None:
    """Follow a flow run to its end: a chart of its steps in a terminal, a line an event in a pipe.

    With --json each line is a frame, `{"v": 1, "stream": …, "event": …, "record": …}`. A run that has ended is shown
    as it was. Exit codes: 0 completed, 1 failed or canceled, 3 refused, 4 unavailable.

    `fetchbox flows watch 01939c6e-…`

    `fetchbox flows watch 01939c6e-… --json | jq -r 'select(.event == "step.completed").record.data.stepKey'`
    """
    with channels.flows(settings(context)) as stub:
        watch_run(stub, run, tenant)


@command(app)
def get(context: typer.Context, run: Run, tenant: Tenant = "") -> None:
    """Show one flow run and its steps.

    `fetchbox flows get 01939c6e-…`

    `fetchbox flows get 01939c6e-… --json | jq .result`
    """
    with channels.flows(settings(context)) as stub:
        _show(stub.GetFlow(GetFlowRequest(flow_id=run, tenant=tenant)))


@command(app, "list")
def list_runs(
    context: typer.Context,
    flow: Annotated[str, typer.Option(help="Only runs of this flow.")] = "",
    status: Annotated[Status | None, typer.Option(help="Only these.")] = None,
    tenant: Annotated[str, typer.Option(help="Only runs of this tenant.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, help="The most runs of a page.")] = 50,
    page: Annotated[str, typer.Option(help="The next page, as the one before named it.")] = "",
) -> None:
    """List flow runs, newest first.

    `fetchbox flows list --flow catalogue --status running`
    """
    request = ListFlowsRequest(flow_name=flow, status=status or "", tenant=tenant, page_size=limit, page_token=page)
    with channels.flows(settings(context)) as stub:
        answer = stub.ListFlows(request)
    if out.json:
        out.document(as_dict(answer))
        return
    out.table(RUN_COLUMNS, [run_row(run) for run in answer.flows])
    if answer.next_page_token:
        out.note(f"more: --page {answer.next_page_token}")


@command(app)
def logs(
    context: typer.Context,
    run: Run,
    step: StepKey,
    attempt: Annotated[int, typer.Option(min=0, help="Only lines of this attempt; 0: of all.")] = 0,
    tenant: Tenant = "",
) -> None:
    """Print the log lines of a step.

    `fetchbox flows logs 01939c6e-… catalogue`
    """
    request = ListStepLogsRequest(flow_id=run, step_key=step, attempt=attempt, tenant=tenant, page_size=_PAGE)
    with channels.flows(settings(context)) as stub:
        while True:
            answer = stub.ListStepLogs(request)
            for event in answer.logs:
                if out.json:
                    out.document(as_dict(event))
                else:
                    out.line(line(event))
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token


@command(app)
def cancel(
    context: typer.Context,
    run: Run,
    reason: Annotated[str, typer.Option(help="Why, for people.")] = "",
    tenant: Tenant = "",
) -> None:
    """Cancel a flow run: its gates are canceled and its jobs stopped. A run that has ended stays as it is.

    `fetchbox flows cancel 01939c6e-… --reason "the wrong manifest"`
    """
    with channels.flows(settings(context)) as stub:
        _show(stub.CancelFlow(CancelFlowRequest(flow_id=run, reason=reason, tenant=tenant)))


def _show(run: Flow) -> None:
    if out.json:
        out.document(as_dict(run))
        return
    out.facts(run_facts(run))
    out.table(STEP_COLUMNS, [step_row(step) for step in run.steps])
