"""`fetchbox jobs create`: a task goes in, and with `--watch` its text comes out as it is made."""

from enum import StrEnum
from typing import Annotated

import typer

from cli import channels
from cli.command import command
from cli.output import as_dict, out
from cli.payload import read_payload
from cli.problems import CommandError, repeatable
from cli.settings import Settings, settings
from cli.task_view import task_facts, watch_task
from fetchbox.task.v1.job_pb2 import Job
from fetchbox.task.v1.task_service_pb2 import CreateJobRequest
from kernel.ids import uuid7

app = typer.Typer()


class Task(StrEnum):
    """What may be asked for."""

    CHAT = "chat"
    PLAN = "plan"
    CODE = "code"
    TOOL = "tool"
    RAG = "rag"
    EMBED = "embed"


_CALLBACKS = frozenset({Task.TOOL, Task.RAG})


@command(app)
def create(
    context: typer.Context,
    task: Annotated[Task, typer.Option(help="What the job is to do.")],
    payload: Annotated[str, typer.Option(help="A JSON object; `@file` reads a file, `-` reads stdin.")],
    ttl: Annotated[
        int | None,
        typer.Option(min=60, max=2_592_000, help="Seconds that the job and its events are kept after its end."),
    ] = None,
    idempotency_key: Annotated[str, typer.Option(help="The same key and request always mean the same job.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Print its text as it comes, else its result.")] = False,
) -> None:
    """Create a task job. The configured handler for its task runs it.

    Exit codes: 0 created (with --watch: done), 1 failed or canceled, 2 wrong usage, 3 refused, 4 unavailable.

    `fetchbox jobs create --task chat --payload '{"prompt": "Why is the sky blue?"}' --watch`

    `fetchbox jobs create --task embed --payload @texts.json --watch > vectors.json`
    """
    options = settings(context)
    request = CreateJobRequest(
        task=task,
        payload=read_payload(payload, options),
        ttl_s=ttl,
        idempotency_key=idempotency_key or f"cli-{uuid7()}",
    )
    job = _created(options, request)
    if watch:
        out.note(f"created {job.job_id}", "dim")
        with channels.tasks(options) as stub:
            watch_task(stub, job.job_id)
    elif out.json:
        out.document(as_dict(job))
    else:
        out.facts(task_facts(job))
        out.note(f"`fetchbox jobs watch {job.job_id}` shows what comes of it.")


def _created(options: Settings, request: CreateJobRequest) -> Job:
    try:
        with repeatable(request.idempotency_key), channels.tasks(options) as stub:
            return stub.CreateJob(request)
    except CommandError as error:
        if error.reason == "UNSUPPORTED_JOB_TYPE":
            error.hint = _how_to_configure(Task(request.task))
        raise


def _how_to_configure(task: Task) -> str:
    """What to write down for a task that nobody does."""
    endpoint = "http://127.0.0.1:9000/hook" if task in _CALLBACKS else "http://127.0.0.1:11434/v1"
    model = "" if task in _CALLBACKS else '\n  model = "llama3.2"'
    return (
        "Put this, with your endpoint, into fetchbox.toml, and restart ingest and worker with --config fetchbox.toml:"
        f'\n  [tasks.{task}]\n  endpoint = "{endpoint}"{model}'
    )
