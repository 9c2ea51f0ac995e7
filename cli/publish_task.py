"""`fetchbox publish-task`: a direct producer. The task goes straight to Redis, unchecked."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import ParseDict, ParseError

from cli.command import command
from cli.found_data import where_to_look
from cli.output import out
from cli.problems import USAGE, CommandError, from_kernel
from cli.settings import settings
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.jobs.jobs_pb2 import DownloadTask, HttpHeader
from kernel.ids import uuid7
from kernel.redis import keys

app = typer.Typer()
_MOST = 2**32 - 1  # what the fields hold


@command(app)
def publish_task(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="ProtoJSON of `DownloadTask`s, one object a line or an array; `-` reads stdin."),
    ] = None,
    url: Annotated[str, typer.Option(help="What to fetch, where no file is given.")] = "",
    job_id: Annotated[str, typer.Option(help="The job; default: a new UUIDv7.")] = "",
    job_type: Annotated[str, typer.Option(help="The configured job type.")] = "default",
    resource_id: Annotated[str, typer.Option(help="The resource, unique in its job.")] = "resource-1",
    resources_total: Annotated[
        int, typer.Option(min=0, max=_MOST, help="How many resources the job has; 0: unknown.")
    ] = 1,
    resource_index: Annotated[
        int, typer.Option(min=0, max=_MOST, help="Which of them this is, from 1; 0: unknown.")
    ] = 1,
    tenant: Annotated[str, typer.Option(help="The tenant.")] = "",
    checksum: Annotated[str, typer.Option(help="What the content must have: sha256:<64 hex digits>.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="A request header, `name: value`; repeatable.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show stream and bytes; publish nothing.")] = False,
) -> None:
    """Put resources on `jobs.tasks` without asking ingest. Nothing is validated, stored or de-duplicated first.

    `fetchbox publish-task --url https://example.com/a.jpg`

    `fetchbox publish-task tasks.jsonl --dry-run --json`
    """
    if bool(file) == bool(url):
        raise CommandError("give either a file of tasks or --url", USAGE, hint="`fetchbox publish-task --help`")
    if file is not None:
        tasks = _parsed(_read(file))
    else:
        task = DownloadTask(
            job_id=job_id or uuid7(),
            job_type=job_type,
            resource_id=resource_id,
            url=url,
            headers=[_header(text) for text in header or ()],
            tenant=tenant,
            resources_total=resources_total,
            resource_index=resource_index,
        )
        if checksum:
            task.attributes.checksum_hint = checksum
        tasks = [task]
    config = settings(context).load()
    published = [] if dry_run else _publish(config, tasks)
    _show(config, tasks, published)


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {file}: {error}", USAGE) from error


def _parsed(text: str) -> list[DownloadTask]:
    try:
        values = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in _lines(text)]
        tasks = [ParseDict(value, DownloadTask()) for value in values]
    except (ValueError, TypeError, ParseError) as error:
        raise CommandError(f"these are no tasks in ProtoJSON: {error}", USAGE) from error
    if not tasks:
        raise CommandError("there is no task in the input", USAGE)
    return tasks


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _header(text: str) -> HttpHeader:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CommandError(f"--header is `name: value`, not {text!r}", USAGE)
    return HttpHeader(name=name.strip().lower(), value=value.strip())


def _publish(config: Config, tasks: Sequence[DownloadTask]) -> list[str]:
    from kernel.errors import FetchboxError  # noqa: PLC0415  # storage clients take 0.5 s to import

    try:
        return asyncio.run(_append(config, tasks))
    except FetchboxError as error:
        raise from_kernel(error, where_to_look("set REDIS_ADDR")) from error


async def _append(config: Config, tasks: Sequence[DownloadTask]) -> list[str]:
    from kernel.log.topics import Topics  # noqa: PLC0415
    from kernel.redis.clients import RedisClients  # noqa: PLC0415

    clients = await RedisClients.open(config.redis)
    try:
        topic = Topics(clients, config).tasks
        return [await topic.publish(task) for task in tasks]
    finally:
        await clients.close()


def _show(config: Config, tasks: Sequence[DownloadTask], published: Sequence[str]) -> None:
    for position, task in enumerate(tasks):
        partition = keys.partition_of(task.job_id, config.streams.tasks.partitions)
        facts: dict[str, Any] = {
            "job": task.job_id,
            "resource": task.resource_id,
            "stream": keys.stream(keys.TASKS, partition),
            "entry": published[position] if published else "",
            "payload": "" if published else task.SerializeToString(deterministic=True).hex(),
        }
        if out.json:
            out.document(facts)
        else:
            out.facts(facts)
