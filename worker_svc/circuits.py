"""Which circuit work depends on, whether it may begin, and what its outcome says of the circuit.

A task depends on its endpoint and on the model that it asks for, a resource on the host of its URL; where a handler of
one's own has no endpoint, the circuit is that of the task, or of the step. A job counts once: what is tried again was
counted before, and is no probe as long as there is other work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask, QueuedTask
from flows.model.label import read_label
from kernel.breakers import Admission, Breakers, names
from kernel.errors import failure_name
from kernel.handlers import HandlerRegistry, JobHandler
from kernel.hostname import UrlError
from kernel.queue.streams.deferring import Deferral
from kernel.queue.streams.entry import QueueEntry
from kernel.queue.work.types import Claim, Failure, Outcome
from worker_svc.fetch.circuit import until_down
from worker_svc.fetch.url import parse
from worker_svc.tasks.fault import ModelFault, fault_of

_TASK_WAITS: Final = failure_name(errors_pb2.FAILURE_CODE_HANDLER_CIRCUIT_OPEN)
_FETCH_WAITS: Final = failure_name(errors_pb2.FAILURE_CODE_DOWNLOAD_CIRCUIT_OPEN)
_ANSWERED: Final = failure_name(errors_pb2.FAILURE_CODE_HANDLER_HTTP, 1).removesuffix("1")


def is_first(claim: Claim) -> bool:
    """Whether a claim is the first attempt of its job, or of its step."""
    return claim.attempt == 0 and not _is_repeated_step(claim.work)


def is_fresh(entry: QueueEntry) -> bool:
    """Whether the work of an entry has never failed: in no attempt, crash or replay, nor as an earlier step's job."""
    work = entry.work
    untried = entry.attempts == 0 and entry.crashes == 0
    return untried and work is not None and work.replay == 0 and not _is_repeated_step(work)


class StartGate:
    """Answers for entries that were delivered (`kernel.queue.streams.deferring.CircuitGate`)."""

    def __init__(
        self,
        breakers: Breakers,
        handlers: HandlerRegistry,
        of_task: Callable[[QueuedTask], str],
        host_give_up: float = 0.0,
    ) -> None:
        """`of_task` names the circuit of a task; empty where it has none here.

        `host_give_up`: after how many seconds of silence resources begin in order to end, as their host is down.
        """
        self._give_up = host_give_up
        self._breakers = breakers
        self._handlers = handlers
        self._of_task = of_task

    async def all_closed(self) -> bool:
        """Whether nothing needs to be asked."""
        return await self._breakers.all_closed()

    async def ask(self, entry: QueueEntry) -> Deferral | None:
        """Why the work of an entry is to wait; None where it may begin."""
        circuit = self._circuit(entry)
        if not circuit:
            return None
        fresh = is_fresh(entry)
        admission = await self._breakers.admit(circuit, fresh=fresh)
        if not admission.allowed:
            wait = self._breakers.deferral(circuit, fresh=fresh)
            if entry.queued:
                return Deferral(_TASK_WAITS, wait)
            left = await until_down(self._breakers, circuit, self._give_up)
            return Deferral(_FETCH_WAITS, min(wait, left)) if left > 0 else None
        if admission.probe:
            entry.circuit, entry.admission = circuit, admission
        return None

    def release(self, circuit: str, admission: Admission) -> None:
        """A probe that has told nothing leaves its place to others."""
        self._breakers.release(circuit, admission)

    def _circuit(self, entry: QueueEntry) -> str:
        if isinstance(entry.work, QueuedTask):
            return self._of_task(entry.work)
        return self._of_resource(entry.work) if entry.work is not None else ""

    def _of_resource(self, task: DownloadTask) -> str:
        """A handler of one's own may ask whom it likes, and is turned away when it does."""
        handler = self._handlers.get(task.job_type)
        if handler is None or type(handler).run is not JobHandler.run:
            return ""
        try:
            return names.of_host(parse(task.url).site)
        except UrlError:
            return ""


def tell(breakers: Breakers, circuit: str, claim: Claim, outcome: Outcome | None) -> None:
    """Tells the circuit of a task how an attempt ended; None for one that was interrupted."""
    probe, claim.circuit = bool(claim.circuit), ""
    admission = claim.admission
    result = _result(outcome, probe=probe)
    if result is not None and (probe or is_first(claim)):
        breakers.record(circuit, result, admission)
    elif admission is not None:
        breakers.release(circuit, admission)


def _result(outcome: Outcome | None, *, probe: bool) -> bool | None:
    """Whether an endpoint has done its part; None where the outcome does not say.

    A caller's fault counts for nothing. But an endpoint that refuses a probe with good reason is well.
    """
    if outcome is None:
        return None
    if not isinstance(outcome, Failure):
        return True
    fault = fault_of(outcome.code)
    if fault is ModelFault.SERVER:
        return False
    return True if probe and fault is ModelFault.CALLER and outcome.code.startswith(_ANSWERED) else None


def _is_repeated_step(work: object) -> bool:
    """Whether work is another attempt at a step of a flow: each is a job of its own."""
    if not isinstance(work, QueuedTask) or not work.flow:
        return False
    label = read_label(work.flow)
    return label is not None and label.attempt > 1
