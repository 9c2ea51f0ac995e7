"""The course of the demo: start, submit, follow, prove, end."""

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cli import channels
from cli.demo.cases import Case, images, manifest, trouble
from cli.demo.proof import ProofVerdict, prove
from cli.demo.site_thread import SiteThread
from cli.embedded.process import StartError
from cli.follow import follow
from cli.local import LocalPlatform
from cli.output import out
from cli.problems import SOME_FAILED, UNAVAILABLE, CommandError
from cli.progress import JobProgress
from cli.sample_site import SampleSite
from cli.settings import Settings
from cli.submit import Submission, submit
from fetchbox.operator.v1.job_pb2 import DeadLetter, Job
from fetchbox.operator.v1.operator_service_pb2 import GetJobRequest, ListDeadLettersRequest

_ENVIRON = {
    "FETCHBOX_FETCHER_ALLOW_NETWORKS": "127.0.0.0/8",  # the sample site is there
    "WORKER_BACKOFF_BASE": "100ms",
    "WORKER_BACKOFF_MAX": "400ms",
    "OBSERVABILITY_METRICS_PORT": "0",
}
_RESULTS_SECONDS = 15.0


def run() -> int:
    """Runs the demo and shows its outcome; how many resources did not end as they must."""
    signal.signal(signal.SIGTERM, _interrupted)
    data = Path(tempfile.mkdtemp(prefix="fetchbox-demo-"))
    began = time.monotonic()
    try:
        with SiteThread() as site, LocalPlatform(data, any_ports=True, environ=_ENVIRON) as platform:
            out.note(f"the platform is up after {time.monotonic() - began:.1f} s", "dim")
            verdicts = _jobs(platform, site)
    except StartError as error:
        raise CommandError(str(error), UNAVAILABLE) from error
    finally:
        shutil.rmtree(data, ignore_errors=True)
    _show(verdicts, time.monotonic() - began)
    return sum(1 for verdict in verdicts if verdict.problem)


def _jobs(platform: LocalPlatform, site: SampleSite) -> list[ProofVerdict]:
    gateway = platform.config.gateway
    options = Settings(
        given={
            "gateway": gateway.listen,
            "ingest": gateway.ingest,
            "operator": gateway.operator,
            "worker": gateway.worker,
        }
    )
    good, bad = images(site), trouble()
    verdicts = _job(platform, site, options, good, "a gallery", by_rest=True)
    return verdicts + _job(platform, site, options, bad, "what goes wrong", by_rest=False)


def _job(
    platform: LocalPlatform, site: SampleSite, options: Settings, cases: Sequence[Case], title: str, *, by_rest: bool
) -> list[ProofVerdict]:
    """Submits one manifest, twice under one key, follows its job and proves what it left."""
    document = manifest(site, cases, title)
    submission = Submission(document, "default", "", f"demo-{title.replace(' ', '-')}")
    answer = submit(options, submission, by_rest=by_rest)
    again = submit(options, submission, by_rest=by_rest)
    if again.job_id != answer.job_id:
        raise CommandError("the same idempotency key made a second job", SOME_FAILED)
    out.note(f"submitted {title!r} by {'REST' if by_rest else 'gRPC'}: job {answer.job_id}", "dim")
    job, letters = _followed(options, answer.job_id, title)
    return prove(platform.config, site, job, document, cases, letters)


def _followed(options: Settings, job_id: str, title: str) -> tuple[Job, list[DeadLetter]]:
    """The job once it has ended and its results are written, and its dead letters."""
    with channels.operator(options) as stub:
        with JobProgress(title) as progress:
            job = follow(stub, job_id, progress.update)
        deadline = time.monotonic() + _RESULTS_SECONDS
        while not job.results_key:
            if time.monotonic() > deadline:
                raise CommandError(f"job {job_id} has no results after {_RESULTS_SECONDS:g} s", SOME_FAILED)
            time.sleep(0.05)
            job = stub.GetJob(GetJobRequest(job_id=job_id))
        return job, list(stub.ListDeadLetters(ListDeadLettersRequest(job_id=job_id)).dead_letters)


def _show(verdicts: Sequence[ProofVerdict], took: float) -> None:
    wrong = sum(1 for verdict in verdicts if verdict.problem)
    if out.json:
        outcomes = [
            {
                "resource_id": verdict.case.id,
                "expected": verdict.case.expected,
                "seen": verdict.seen,
                "attempts": verdict.attempts,
                "size": verdict.size,
                "sha256": verdict.sha256,
                "problem": verdict.problem,
            }
            for verdict in verdicts
        ]
        out.document({"outcomes": outcomes, "wrong": wrong, "seconds": round(took, 1)})
        return
    rows = [
        (
            verdict.case.id,
            verdict.case.shows,
            verdict.seen,
            verdict.attempts,
            verdict.size or "",
            verdict.sha256[:16],
            verdict.problem or "as it must",
        )
        for verdict in verdicts
    ]
    out.table(("resource", "shows", "outcome", "attempts", "bytes", "sha256", "verdict"), rows)
    stored = sum(1 for verdict in verdicts if verdict.sha256)
    counts = f"{stored} objects read back, {len(verdicts) - stored} dead letters found, {wrong} wrong"
    out.note(f"{counts}; {took:.0f} s", "red" if wrong else "green")


def _interrupted(_number: int, _frame: object) -> None:
    sys.exit(128 + signal.SIGTERM)
