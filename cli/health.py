"""`fetchbox health`: how every part is."""

import typer

from cli import channels
from cli.command import command
from cli.output import as_dict, out
from cli.problems import CommandError
from cli.settings import settings
from fetchbox.operator.v1.operator_service_pb2 import GetHealthRequest, HealthReport

app = typer.Typer()


@command(app)
def health(context: typer.Context) -> None:
    """Show the health of every component. Exits with 4 when a critical one is unhealthy.

    `fetchbox health --json | jq -r .status`
    """
    try:
        with channels.operator(settings(context)) as stub:
            _show(stub.GetHealth(GetHealthRequest()))
    except CommandError as error:
        if error.report is None:
            raise
        _show(error.report)
        raise typer.Exit(error.exit_code) from error


def _show(report: HealthReport) -> None:
    if out.json:
        out.document(as_dict(report))
        return
    rows = [
        (part.name, part.status, "yes" if part.critical else "no", f"{part.latency_ms:.1f}", part.message)
        for part in report.components
    ]
    out.table(("component", "status", "critical", "ms", "message"), rows, title=f"FetchBox is {report.status}")
