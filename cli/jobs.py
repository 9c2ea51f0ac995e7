"""`fetchbox jobs`: create task jobs; show, follow and cancel fetch jobs and task jobs."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from cli import channels, create
from cli.command import command, group
from cli.follow import follow, leaving
from cli.found import FETCH, find
from cli.output import as_dict, out
from cli.problems import SOME_FAILED, USAGE, CommandError
from cli.progress import JobProgress
from cli.settings import Settings, settings
from cli.summary import failures_of, job_facts, show_summary
from cli.task_view import task_facts, watch_task
from cli.times import clock, shown
from fetchbox.operator.v1.job_pb2 import Job, LogEntry
from fetchbox.operator.v1.operator_service_pb2 import (
    CancelJobRequest,
    ExportJobsRequest,
    ListJobsRequest,
    StreamJobLogsRequest,
)
from fetchbox.task.v1 import task_service_pb2

app = group("Create task jobs. Show, follow and cancel fetch jobs and task jobs.")
app.add_typer(create.app)
JobId = Annotated[str, typer.Argument(help="The job, as `submit`, `jobs create` and `jobs list` print it.")]


@command(app)
def get(context: typer.Context, job_id: JobId) -> None:
    """Show one job; of a task job also its result.

    `fetchbox jobs get 01939c6e-… --json | jq .status`
    """
    options = settings(context)
    job = find(options, job_id)
    if out.json:
        out.document(as_dict(job))
    elif isinstance(job, Job):
        with channels.operator(options) as stub:
            failures = failures_of(stub, job)
        show_summary(job, failures)
    else:
        out.facts(task_facts(job))


@command(app, "list")
def list_jobs(
    context: typer.Context,
    status: Annotated[
        str, typer.Option(help="Only these: queued, in_progress, completed, partial, failed or canceled.")
    ] = "",
    task: Annotated[
        str, typer.Option(help="chat, plan, code, tool, rag or embed; fetch (fetch jobs) or step (of flow runs).")
    ] = "",
    job_type: Annotated[str, typer.Option(help="Only jobs of this type.")] = "",
    tenant: Annotated[str, typer.Option(help="Only jobs of this tenant.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most jobs of a page.")] = 50,
    page: Annotated[str, typer.Option(help="The next page, as the one before named it.")] = "",
) -> None:
    """List jobs, newest first.

    `fetchbox jobs list --status failed`

    `fetchbox jobs list --task chat`
    """
    request = ListJobsRequest(
        page_size=limit, page_token=page, status=status, task=task, job_type=job_type, tenant=tenant
    )
    with channels.operator(settings(context)) as stub:
        answer = stub.ListJobs(request)
    if out.json:
        out.document(as_dict(answer))
        return
    if answer.HasField("counts"):
        found = [(field.name, count) for field, count in answer.counts.ListFields() if count]
        out.note(", ".join(f"{count:,} {name}" for name, count in found) or "no jobs")
    columns = ("job", "task", "type", "status", "stored", "failed", "total", "created")
    rows = [
        (
            job.job_id,
            job.task,
            job.job_type,
            job.status,
            *_counts(job),
            shown(job.created_at),
        )
        for job in answer.jobs
    ]
    out.table(columns, rows)
    if answer.next_page_token:
        out.note(f"more: --page {answer.next_page_token}")


def _counts(job: Job) -> tuple[object, object, object]:
    """Its resources; a task job has none."""
    return (job.resource_completed, job.resource_failed, job.resource_total) if job.task == FETCH else ("", "", "")


@command(app)
def logs(
    context: typer.Context,
    job_id: JobId,
    follow_on: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    since: Annotated[int, typer.Option(help="Only what comes after this offset.")] = -1,
) -> None:
    """Print the log of one job.

    `fetchbox jobs logs 01939c6e-… --follow`
    """
    request = StreamJobLogsRequest(job_id=job_id, follow=follow_on)
    if since >= 0:
        request.since_offset = since
    with channels.operator(settings(context)) as stub:
        for entry in stub.StreamJobLogs(request):
            _show_log(entry)


def _show_log(entry: LogEntry) -> None:
    if out.json:
        out.document(as_dict(entry))
        return
    facts = " ".join(f"{name}={value}" for name, value in sorted(entry.fields.items()))
    cells = (clock(entry.time), f"{entry.level:5}", entry.resource_id, entry.message, facts)
    out.line(" ".join(" ".join(cell.splitlines()) for cell in cells if cell))


@command(app)
def watch(context: typer.Context, job_id: JobId) -> None:
    """Follow one job to its end; of a task job print the text as it comes. Exits with 1 when not all was done.

    `fetchbox jobs watch 01939c6e-…`
    """
    options = settings(context)
    if isinstance(find(options, job_id), Job):
        _watch_manifest(options, job_id)
    else:
        with channels.tasks(options) as stub:
            watch_task(stub, job_id)


def _watch_manifest(options: Settings, job_id: str) -> None:
    with channels.operator(options) as stub:
        with leaving(job_id), JobProgress(job_id) as progress:
            job = follow(stub, job_id, progress.update)
        failures = failures_of(stub, job)
    if out.json:
        out.document(as_dict(job) | {"failures": [as_dict(letter) for letter in failures]})
    else:
        show_summary(job, failures)
    if job.status != "completed":
        raise typer.Exit(SOME_FAILED)


@command(app)
def cancel(context: typer.Context, job_id: JobId) -> None:
    """Cancel one job. A job that has ended stays as it is.

    `fetchbox jobs cancel 01939c6e-…`
    """
    options = settings(context)
    if isinstance(find(options, job_id), Job):
        with channels.operator(options) as operator:
            manifest = operator.CancelJob(CancelJobRequest(job_id=job_id))
        document, facts = as_dict(manifest), job_facts(manifest)
    else:
        with channels.tasks(options) as stub:
            task = stub.CancelJob(task_service_pb2.CancelJobRequest(job_id=job_id))
        document, facts = as_dict(task), task_facts(task)
    if out.json:
        out.document(document)
    else:
        out.facts(facts)


@command(app)
def export(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write; `-` is stdout.")] = Path("-"),
    ended: Annotated[bool, typer.Option("--ended", help="Only jobs that have ended.")] = False,
) -> None:
    """Write the snapshots of all jobs, one JSON object a line, oldest first, before they are pruned.

    `fetchbox jobs export --ended -o jobs.jsonl`
    """
    request = ExportJobsRequest(ended_only=ended)
    with channels.operator(settings(context)) as stub:
        if str(output) == "-":
            for job in stub.ExportJobs(request):
                out.document(as_dict(job))
            return
        count = _write(output, (json.dumps(as_dict(job), ensure_ascii=False) for job in stub.ExportJobs(request)))
    out.note(f"{count} jobs written to {output}")


def _write(output: Path, lines: Iterable[str]) -> int:
    """Writes lines to a file that appears under its name only when it is whole; how many."""
    part = output.with_name(f"{output.name}.part")
    count = 0
    try:
        with part.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
        part.replace(output)
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}", USAGE) from error
    finally:
        part.unlink(missing_ok=True)
    return count
