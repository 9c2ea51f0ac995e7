"""`fetchbox worker`: what a worker does, and steering it."""

from typing import Annotated

import typer
from google.protobuf.duration_pb2 import Duration

from cli import channels
from cli.command import command, group
from cli.output import as_dict, out
from cli.settings import settings
from fetchbox.worker.v1.worker_service_pb2 import (
    DrainRequest,
    GetStatusRequest,
    PauseRequest,
    ResumeRequest,
    WorkerStatus,
)

app = group("Show what a worker does; pause, resume and drain it.")
_DRAIN_MARGIN = 10.0


@command(app)
def status(context: typer.Context) -> None:
    """Show what the worker does now.

    `fetchbox --worker 10.0.0.7:50052 worker status`
    """
    with channels.worker(settings(context)) as stub:
        _show(stub.GetStatus(GetStatusRequest()))


@command(app)
def pause(context: typer.Context) -> None:
    """Claim no new work; running work goes on.

    `fetchbox worker pause`
    """
    with channels.worker(settings(context)) as stub:
        _show(stub.Pause(PauseRequest()))


@command(app)
def resume(context: typer.Context) -> None:
    """Claim work again.

    `fetchbox worker resume`
    """
    with channels.worker(settings(context)) as stub:
        _show(stub.Resume(ResumeRequest()))


@command(app)
def drain(
    context: typer.Context,
    grace: Annotated[float, typer.Option(min=0, help="Seconds that running work may take.")] = 30.0,
) -> None:
    """Claim no new work, wait for running work, give the rest back. Returns when that is done.

    `fetchbox worker drain --grace 60`
    """
    seconds = int(grace)
    request = DrainRequest(grace=Duration(seconds=seconds, nanos=int((grace - seconds) * 1e9)))
    with channels.worker(settings(context)) as stub:
        _show(stub.Drain(request, timeout=grace + _DRAIN_MARGIN))


def _show(answer: WorkerStatus) -> None:
    if out.json:
        out.document(as_dict(answer))
        return
    out.facts(
        {
            "worker": answer.worker_id,
            "state": answer.state,
            "running": f"{len(answer.running)} of {answer.slots} slots",
            "completed": answer.completed,
            "failed": answer.failed,
            "retried": answer.retried,
            "last poll": f"{answer.last_poll_age_seconds:.1f} s ago",
        }
    )
    if answer.running:
        rows = [(task.job_id, task.resource_id, f"{task.running_seconds:.1f}") for task in answer.running]
        out.table(("job", "resource", "seconds"), rows)
