"""`fetchbox files`: file jobs on their priority lists, and those that failed for good."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import typer

from cli import channels
from cli.choosing import PART, confirm, parts
from cli.command import command, group
from cli.output import as_dict, out
from cli.problems import SOME_FAILED, USAGE, CommandError
from cli.settings import settings
from cli.times import shown
from fetchbox.operator.v1.operator_service_pb2 import (
    FileReplayOutcome,
    ListFileDeadLettersRequest,
    ListQueuesRequest,
    ListQueuesResponse,
    PurgeFileDeadLettersRequest,
    ReplayFileDeadLettersRequest,
)
from fetchbox.operator.v1.operator_service_pb2_grpc import OperatorServiceStub

app = group("Show the queues and workers of file jobs; list, replay and purge file jobs that failed for good.")
Digests = Annotated[list[str] | None, typer.Argument(help="Digests, as `files dlq` prints them.")]
OfCode = Annotated[str, typer.Option("--code", help="All with this failure code.")]
_REPLAYED = "replayed"
_NOT_FOUND = "not_found"
_DIGEST = re.compile("[0-9a-f]{40}")
_WHERE = "`fetchbox files dlq` shows digests."


@command(app)
def queues(context: typer.Context) -> None:
    """Show how many file jobs wait on each queue, and what each worker holds.

    `fetchbox files queues`
    """
    with channels.operator(settings(context)) as stub:
        answer = stub.ListQueues(ListQueuesRequest())
    if out.json:
        out.document(as_dict(answer))
        return
    rows = [(one.priority, one.queue, one.length, _age(one.oldest_age_seconds), one.breaker) for one in answer.queues]
    out.table(("priority", "queue", "length", "oldest", "breaker"), rows)
    if answer.workers:
        _workers(answer)
    out.facts(
        {
            "delayed": answer.delayed,
            "suspects": answer.suspects,
            "completed": answer.completed,
            "dead letters": answer.dead_letters,
        }
    )
    if not answer.workers and any(one.length for one in answer.queues):
        out.note("nobody works on these queues: `fetchbox serve --role=worker` does", "yellow")


def _workers(answer: ListQueuesResponse) -> None:
    rows = [
        (one.worker_id, "alive" if one.alive else "dead", one.processing, f"{one.last_seen_seconds:.1f} s ago")
        for one in answer.workers
    ]
    out.table(("worker", "state", "holds", "seen"), rows)


@command(app)
def dlq(
    context: typer.Context,
    code: Annotated[str, typer.Option(help="Only those with this failure code.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="The most of a page.")] = 50,
    page: Annotated[str, typer.Option(help="The next page, as the one before named it.")] = "",
) -> None:
    """List file jobs that failed for good, newest first.

    `fetchbox files dlq --code VALIDATION_FILE_MISSING`
    """
    request = ListFileDeadLettersRequest(page_size=limit, page_token=page, failure_code=code)
    with channels.operator(settings(context)) as stub:
        answer = stub.ListFileDeadLetters(request)
    if out.json:
        out.document(as_dict(answer))
        return
    columns = ("digest", "job", "file", "queue", "code", "retries", "replays", "failed at", "message")
    rows = [
        (
            letter.digest,
            letter.job_id,
            letter.filepath,
            letter.queue,
            letter.failure_code,
            letter.retries,
            letter.replays,
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
    digests: Digests = None,
    code: OfCode = "",
    everything: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Beyond the limit of replays too.")] = False,
) -> None:
    """Replay dead file jobs: each goes back onto its queue. Exits with 1 when one of them was not replayed.

    `fetchbox files replay --code STORAGE_UNAVAILABLE`

    `fetchbox files dlq | grep /incoming/ | cut -f1 | xargs fetchbox files replay`

    With `--code` or `--all` the outcomes are counted, and what fails meanwhile is left out.
    """
    chosen = _named(digests)
    if bool(chosen) == (bool(code) or everything):
        raise _nothing_named("--code or --all")
    with channels.operator(settings(context)) as stub:
        if chosen:
            outcomes = [outcome for part in parts(chosen) for outcome in _replayed(stub, part, force)]
            _show(outcomes)
            counts = Counter(outcome.outcome for outcome in outcomes)
        else:
            counts = _all_replayed(stub, code, force)
            _count(counts)
    if set(counts) - {_REPLAYED}:
        raise typer.Exit(SOME_FAILED)


def _replayed(stub: OperatorServiceStub, digests: list[str], force: bool) -> list[FileReplayOutcome]:
    return list(stub.ReplayFileDeadLetters(ReplayFileDeadLettersRequest(digests=digests, force=force)).outcomes)


def _all_replayed(stub: OperatorServiceStub, code: str, force: bool) -> Counter[str]:
    """Page by page, so that what cannot be replayed is passed by, and what comes meanwhile is not met again."""
    counts: Counter[str] = Counter()
    for page in _pages(stub, code):
        # What is gone by now was replayed or purged by somebody else, or a page has repeated it.
        outcomes = (outcome.outcome for outcome in _replayed(stub, page, force)) if page else ()
        counts.update(outcome for outcome in outcomes if outcome != _NOT_FOUND)
    return counts


def _pages(stub: OperatorServiceStub, code: str) -> Iterator[list[str]]:
    request = ListFileDeadLettersRequest(page_size=PART, failure_code=code)
    while True:
        answer = stub.ListFileDeadLetters(request)
        yield [letter.digest for letter in answer.dead_letters]
        request.page_token = answer.next_page_token
        if not request.page_token:
            return


def _show(outcomes: list[FileReplayOutcome]) -> None:
    if out.json:
        out.document({"outcomes": [as_dict(outcome) for outcome in outcomes]})
    else:
        out.table(("digest", "outcome", "replay"), [(one.digest, one.outcome, one.replay) for one in outcomes])


def _count(counts: Counter[str]) -> None:
    counted = {_REPLAYED: counts[_REPLAYED]} | counts
    if out.json:
        out.document(counted)
    else:
        out.facts(counted)
    if not counts:
        _none_found()


@command(app)
def purge(
    context: typer.Context,
    digests: Digests = None,
    everything: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete dead file jobs for good. The files themselves stay where they are.

    `fetchbox files dlq --code VALIDATION_FILE_MISSING | tail -n +2 | cut -f1 | xargs fetchbox files purge --yes`

    `fetchbox files purge --all`
    """
    chosen = _named(digests)
    if bool(chosen) == everything:
        raise _nothing_named("--all")
    confirm("Delete these dead letters for good?", yes=yes)
    purged = 0
    with channels.operator(settings(context)) as stub:
        for part in parts(chosen):
            request = PurgeFileDeadLettersRequest(digests=part, all=everything)
            remaining = True
            while remaining:
                answer = stub.PurgeFileDeadLetters(request)
                purged += answer.purged
                remaining = answer.remaining and answer.purged > 0
    if out.json:
        out.document({"purged": purged})
    else:
        out.facts({"purged": purged})
    if not purged:
        _none_found()


def _named(digests: list[str] | None) -> list[str]:
    chosen = list(digests or ())
    for one in chosen:
        if not _DIGEST.fullmatch(one):
            raise CommandError(f"{one!r} is no digest", USAGE, hint=_WHERE)
    return chosen


def _none_found() -> None:
    out.note("there is no such dead letter; `fetchbox files dlq` shows those there are", "yellow")


def _nothing_named(others: str) -> CommandError:
    return CommandError(f"name either digests or {others}", USAGE, hint=_WHERE)


def _age(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds else ""
