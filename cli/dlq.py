"""`fetchbox dlq`: tasks that failed for good."""

import time
from typing import Annotated

import grpc
import typer

from cli import channels
from cli.choosing import confirm, parts
from cli.command import command, group
from cli.found import FETCH
from cli.output import as_dict, out
from cli.problems import SOME_FAILED, USAGE, CommandError
from cli.settings import settings
from cli.times import age_seconds, shown
from fetchbox.operator.v1.operator_service_pb2 import (
    ListDeadLettersRequest,
    PurgeDeadLettersRequest,
    ReplayDeadLettersRequest,
    ReplayOutcome,
)
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

app = group("List, replay and purge dead letters: resources and task jobs that failed for good.")
_MOST = 500
"""Dead letters that one call replays."""
Positions = Annotated[list[str] | None, typer.Argument(help="Positions, as `dlq list` prints them.")]
OfJob = Annotated[str, typer.Option("--job", help="All dead letters of this job.")]


@command(app, "list")
def list_letters(
    context: typer.Context,
    job: OfJob = "",
    code: Annotated[str, typer.Option(help="Only those with this failure code.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most of a page.")] = 50,
    page: Annotated[str, typer.Option(help="The next page, as the one before named it.")] = "",
) -> None:
    """List dead letters, newest first.

    `fetchbox dlq list --code DOWNLOAD_HTTP_404`
    """
    request = ListDeadLettersRequest(page_size=limit, page_token=page, job_id=job, failure_code=code)
    with channels.operator(settings(context)) as stub:
        answer = stub.ListDeadLetters(request)
    if out.json:
        out.document(as_dict(answer))
        return
    columns = ("position", "job", "task", "resource", "code", "attempts", "failed at", "message")
    rows = [
        (
            letter.position,
            letter.job_id,
            letter.task or FETCH,
            letter.resource_id,
            letter.failure_code,
            letter.attempts,
            shown(letter.failed_at),
            letter.failure_message,
        )
        for letter in answer.dead_letters
    ]
    out.table(columns, rows)
    if answer.next_page_token:
        out.note(f"more: --page {answer.next_page_token}")


@command(app)
def replay(
    context: typer.Context,
    positions: Positions = None,
    job: OfJob = "",
    host: Annotated[str, typer.Option(help="All resources of this host: its circuit breaker is closed first.")] = "",
    code: Annotated[str, typer.Option(help="Of a job or host only those with this failure code.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Beyond the limit of replays too.")] = False,
) -> None:
    """Replay dead letters. Exits with 1 when one of them was not replayed.

    `fetchbox dlq replay --job 01939c6e-…`

    `fetchbox dlq replay --host example.org --code DOWNLOAD_HOST_DOWN`

    `fetchbox dlq list --code DOWNLOAD_HTTP_503 | tail -n +2 | cut -f1 | xargs fetchbox dlq replay`
    """
    chosen = _chosen(positions, job or host)
    if (job and host) or (chosen and code):
        raise CommandError("name positions, a job or a host; --code goes with the last two", USAGE)
    request = ReplayDeadLettersRequest(job_id=job, host=host, failure_code=code, force=force)
    with channels.operator(settings(context)) as stub:
        outcomes = _all_of(stub, request) if host else _parts(stub, request, chosen)
    if out.json:
        out.document({"outcomes": [as_dict(outcome) for outcome in outcomes]})
    else:
        out.table(("position", "outcome", "replay"), [(one.position, one.outcome, one.replay) for one in outcomes])
        if not outcomes:
            whose = f"job {job}" if job else f"host {host}"
            out.note(f"there is no dead letter of the {whose}; `fetchbox dlq list` shows those there are", "yellow")
    if not outcomes or any(outcome.outcome not in {"replayed", "already_replayed"} for outcome in outcomes):
        raise typer.Exit(SOME_FAILED)


def _parts(stub: OperatorServiceStub, request: ReplayDeadLettersRequest, positions: list[str]) -> list[ReplayOutcome]:
    outcomes: list[ReplayOutcome] = []
    for part in parts(positions):
        del request.positions[:]
        request.positions.extend(part)
        outcomes += _replayed(stub, request)
    return outcomes


def _all_of(stub: OperatorServiceStub, request: ReplayDeadLettersRequest) -> list[ReplayOutcome]:
    """Call by call, as long as one replays something; each letter is told once, with what its last call made of it."""
    told: dict[str, ReplayOutcome] = {}
    going_on = True
    while going_on:
        outcomes = _replayed(stub, request)
        for outcome in outcomes:
            if outcome.position not in told or told[outcome.position].outcome != "replayed":
                told[outcome.position] = outcome
        going_on = len(outcomes) == _MOST and any(outcome.outcome == "replayed" for outcome in outcomes)
    return list(told.values())


def _replayed(stub: OperatorServiceStub, request: ReplayDeadLettersRequest) -> list[ReplayOutcome]:
    """What became of each; nothing for a job that has no dead letters."""
    try:
        return list(stub.ReplayDeadLetters(request).outcomes)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.NOT_FOUND:
            raise
        return []


@command(app)
def purge(
    context: typer.Context,
    positions: Positions = None,
    job: OfJob = "",
    older_than: Annotated[str, typer.Option(help="All that failed longer ago than this: 12h, 7d.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete dead letters for good.

    `fetchbox dlq purge --older-than 30d --yes`
    """
    request = PurgeDeadLettersRequest(job_id=job)
    chosen = _chosen(positions, job or older_than)
    if older_than:
        request.before_ms = _before(older_than)
    confirm("Delete these dead letters for good?", yes=yes)
    purged = 0
    with channels.operator(settings(context)) as stub:
        for part in parts(chosen):
            del request.positions[:]
            request.positions.extend(part)
            remaining = True
            while remaining:
                answer = stub.PurgeDeadLetters(request)
                purged += answer.purged
                remaining = answer.remaining and answer.purged > 0
    if out.json:
        out.document({"purged": purged})
    else:
        out.facts({"purged": purged})


def _chosen(positions: list[str] | None, others: str) -> list[str]:
    chosen = list(positions or ())
    if bool(chosen) == bool(others):
        raise CommandError(
            "name either positions or what they have in common", USAGE, hint="`fetchbox dlq list` shows positions."
        )
    return chosen


def _before(older_than: str) -> int:
    try:
        return int((time.time() - age_seconds(older_than)) * 1000)
    except ValueError as error:
        raise CommandError(f"--older-than: {error}", USAGE) from error
