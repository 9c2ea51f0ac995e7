"""`fetchbox streams`: creating the streams, and looking at them."""

from typing import Annotated

import typer

from cli import channels
from cli.command import command, group
from cli.output import as_dict, out
from cli.provision import provision as provision_servers
from cli.settings import settings
from fetchbox.operator.v1.operator_service_pb2 import ListStreamsRequest

app = group("Create the streams, and show their length and backlog.")


@command(app)
def provision(
    context: typer.Context,
    bucket: Annotated[bool, typer.Option("--bucket/--no-bucket", help="Create the bucket too.")] = True,
) -> None:
    """Create streams, consumer groups and bucket where they are missing. Run it as often as you like.

    `fetchbox --config fetchbox.toml streams provision`
    """
    config = settings(context).load()
    provision_servers(config, bucket=bucket)
    shapes = {"jobs.tasks": config.streams.tasks, "jobs.status": config.streams.status}
    shapes |= {"jobs.logs": config.streams.logs, "jobs.dlq": config.streams.dlq}
    if out.json:
        out.document({name: as_dict(shape) for name, shape in shapes.items()})
        return
    rows = [
        (name, shape.partitions, f"{shape.retention.seconds / 86_400:g} days", f"{shape.max_bytes / 2**30:g} GB")
        for name, shape in shapes.items()
    ]
    out.table(("stream", "partitions", "retention", "at most"), rows)


@command(app, "list")
def list_streams(context: typer.Context) -> None:
    """Show the length and the backlog of every partition.

    `fetchbox streams list`
    """
    with channels.operator(settings(context)) as stub:
        answer = stub.ListStreams(ListStreamsRequest())
    if out.json:
        out.document(as_dict(answer))
        return
    columns = ("stream", "partition", "length", "pending", "waiting", "delayed", "oldest")
    rows = [
        (
            one.stream,
            one.partition,
            one.length,
            one.pending,
            one.waiting,
            one.delayed,
            f"{one.oldest_age_seconds:.1f} s" if one.oldest_age_seconds else "",
        )
        for one in answer.partitions
    ]
    out.table(columns, rows)
