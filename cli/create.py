"""`fetchbox jobs create`: a task goes in, and with `--watch` its text comes out as it is made."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from cli import channels
from cli.command import command
from cli.counting import CountProgress
from cli.create_many import Creation
from cli.order_lines import OrderLines, opened
from cli.output import as_dict, out
from cli.payload import read_payload
from cli.problems import SOME_FAILED, USAGE, CommandError, repeatable
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
    task: Annotated[Task | None, typer.Option(help="What the job is to do.")] = None,
    payload: Annotated[str | None, typer.Option(help="A JSON object; `@file` reads a file, `-` reads stdin.")] = None,
    source: Annotated[
        str, typer.Option("--from", help="A file, or - for stdin, with a payload a line; without --task a whole job.")
    ] = "",
    resumable: Annotated[
        bool, typer.Option("--resumable", help="With --from: running the same file again makes no job twice.")
    ] = False,
    ttl: Annotated[
        int | None,
        typer.Option(min=60, max=2_592_000, help="Seconds that the job and its events are kept after its end."),
    ] = None,
    idempotency_key: Annotated[str, typer.Option(help="The same key and request always mean the same job.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Print its text as it comes, else its result.")] = False,
) -> None:
    """Create a task job, or many from a file. The configured handler for its task runs it.

    A line of the file is a payload, `{"prompt": "One"}`; without --task it is a job, `{"task": "chat", "payload":
    {"prompt": "One"}}`, also with `ttl_s` and `idempotency_key`. Stdout has the job of each line, stderr how many
    failed and why.

    Exit codes: 0 created (with --watch: done), 1 failed or canceled, 2 wrong usage, 3 refused, 4 unavailable.

    `fetchbox jobs create --task chat --payload '{"prompt": "Why is the sky blue?"}' --watch`

    `fetchbox jobs create --task embed --payload @texts.json --watch > vectors.json`

    `fetchbox jobs create --task chat --from prompts.jsonl --resumable`
    """
    options = settings(context)
    if source:
        _require_alone(payload, idempotency_key, watch=watch)
        _create_many(options, OrderLines(task or "", ttl, resumable=resumable), source)
        return
    if task is None or payload is None or resumable:
        wrong = "--resumable needs --from" if resumable else "--task and --payload are required, or --from"
        raise CommandError(wrong, USAGE, hint="`fetchbox jobs create --help` shows examples.")
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


def _require_alone(payload: str | None, key: str, *, watch: bool) -> None:
    given = {"--payload": payload is not None, "--idempotency-key": key, "--watch": watch}
    for option, value in given.items():
        if value:
            raise CommandError(f"{option} is for one job, and --from creates many", USAGE)


def _create_many(options: Settings, lines: OrderLines, source: str) -> None:
    """Creates the jobs of a file, and tells how many failed and why."""
    with opened(source) as file, channels.tasks(options) as stub, CountProgress() as progress:
        creation = Creation(stub, progress)
        try:
            creation.run(lines.batches(file))
        finally:
            failed = creation.reasons.total()
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in creation.reasons.most_common())
            out.note(f"{creation.created:,} created" + (f", {failed:,} failed: {reasons}" if failed else ""))
    if failed:
        sys.exit(SOME_FAILED)


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
