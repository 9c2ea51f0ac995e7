"""What a lane hands out and takes back."""

from dataclasses import dataclass

from fetchbox.jobs.jobs_pb2 import DownloadTask, JobLog, QueuedTask
from kernel import redaction
from kernel.breakers.types import Admission
from kernel.foreign_text import fit
from kernel.queue.work.file_job import FileJob

_LONGEST_CODE = 128
_LONGEST_MESSAGE = 4096


@dataclass(slots=True)
class Claim:
    """One task that this worker holds until it settles it, gives it back, or loses its lease."""

    partition: int
    entry: str
    payload: bytes
    work: DownloadTask | QueuedTask | FileJob
    token: int
    """Fences the settlement: a later claim of the same work has a higher one."""
    attempt: int
    """Attempts made before this one."""
    crashes: int
    """How often this task has lost its process."""
    traceparent: str = ""
    epoch: int = 0
    """The life of the lease under which it was claimed; a claim of an earlier life is void."""
    solo: bool = False
    """Runs alone: its last permitted run after crashes."""
    counted: bool = True
    """Its creation has counted it as open (task jobs)."""
    queue: str = ""
    """The priority list of a file job."""
    circuit: str = ""
    """The circuit of which it is the probe; empty where it is none, or a file job."""
    admission: Admission | None = None
    """What that circuit breaker has answered; of a file job that of its list."""
    began_ms: int = 0
    """When the attempt began, in ms of Redis time (task jobs); 0 where that is not known."""

    @property
    def task(self) -> DownloadTask:
        """The resource to fetch. `TypeError` where the claim is of anything else."""
        if isinstance(self.work, DownloadTask):
            return self.work
        msg = f"the claim is of {self.job_type!r}"
        raise TypeError(msg)

    @property
    def queued(self) -> QueuedTask | None:
        """The task job; None where the claim is of anything else."""
        return self.work if isinstance(self.work, QueuedTask) else None

    @property
    def file(self) -> FileJob:
        """The file to store. `TypeError` where the claim is of anything else."""
        if isinstance(self.work, FileJob):
            return self.work
        msg = f"the claim is of {self.job_type!r}"
        raise TypeError(msg)

    @property
    def job_id(self) -> str:
        """The job."""
        return self.work.job_id

    @property
    def job_type(self) -> str:
        """The configured job type; of a task job its task, of a file job `file`."""
        if isinstance(self.work, DownloadTask):
            return self.work.job_type
        return self.work.task if isinstance(self.work, QueuedTask) else "file"

    @property
    def resource_id(self) -> str:
        """The resource; empty for anything else."""
        return self.work.resource_id if isinstance(self.work, DownloadTask) else ""


@dataclass(slots=True)
class Success:
    """The resource is stored, or the task is done."""

    detail: bytes = b""
    """One JSON line for the results document, without its line end."""
    logs: tuple[JobLog, ...] = ()
    """Log entries of this attempt. The lane writes a line of its own behind those of a task job, and for a
    resource where there are none."""
    result: bytes = b""
    """What a task job returned, JSON."""


@dataclass(slots=True)
class Failure:
    """The attempt failed. Whether another follows is decided by the code, the attempts made and the job type."""

    code: str
    """A `FailureCode` without its prefix; `DOWNLOAD_HTTP_403` carries its status."""
    message: str
    """For people; secrets in it are redacted."""
    detail: bytes = b""
    """One JSON line for the results document; used only when no further attempt follows."""
    retry_after: float | None = None
    """Seconds that the next attempt waits at least."""
    counts: bool = True
    """False for a deferral: the attempt is made again and costs nothing (an open circuit)."""
    logs: tuple[JobLog, ...] = ()
    """As `Success.logs`."""
    crashed: bool = False
    """The process of the handler ended: that costs no attempt, but is one of the crashes that a job may have."""

    def __post_init__(self) -> None:
        """Much of a message is not ours: a server's words, a worker's elsewhere, an exception of users' code."""
        self.code = fit(self.code, _LONGEST_CODE)
        self.message = fit(redaction.text(fit(self.message, _LONGEST_MESSAGE)), _LONGEST_MESSAGE)


Outcome = Success | Failure


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an outcome."""

    outcome: str
    """`completed` and `failed` are final; `retrying` waits for its next attempt, `deferred` for its first or the same
    one; `settled` had been settled before;
    `fenced` belongs to a later claim; `absorbed` came after the end of its job, or of its record."""
    final_due: bool = False
    """Every task of the job is settled and its finalization is due."""
