"""Proves what the jobs left behind: every object by its bytes, every failure by its dead letter."""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.demo.cases import STORED, Case
from cli.sample_site import SampleSite
from fetchbox.config.v1.config_pb2 import Config
from fetchbox.operator.v1.job_pb2 import DeadLetter, Job
from kernel.objects import ObjectStore, parse_uri


@dataclass(frozen=True, slots=True)
class ProofVerdict:
    """How one resource ended; `problem` is empty where that is what was expected."""

    case: Case
    seen: str
    attempts: int
    size: int
    sha256: str
    problem: str


def prove(
    config: Config, site: SampleSite, job: Job, document: bytes, cases: Sequence[Case], letters: Sequence[DeadLetter]
) -> list[ProofVerdict]:
    """One verdict a case, in their order."""
    return asyncio.run(_prove(config, site, job, document, cases, {letter.resource_id: letter for letter in letters}))


async def _prove(
    config: Config,
    site: SampleSite,
    job: Job,
    document: bytes,
    cases: Sequence[Case],
    letters: Mapping[str, DeadLetter],
) -> list[ProofVerdict]:
    objects = ObjectStore(config.object_store)
    try:
        manifest = await objects.get(*parse_uri(job.manifest_key))
        lines = (await objects.get(*parse_uri(job.results_key)) or b"").splitlines()
        results = {line["resource_id"]: line for line in map(json.loads, lines)}
        intact = "" if manifest == document else "the stored manifest differs from the submitted one"
        return [
            await _judge(objects, site, case, results.get(case.id, {}), letters.get(case.id), intact) for case in cases
        ]
    finally:
        await objects.close()


async def _judge(
    objects: ObjectStore,
    site: SampleSite,
    case: Case,
    result: Mapping[str, Any],
    letter: DeadLetter | None,
    problem: str,
) -> ProofVerdict:
    body = await objects.get(*parse_uri(result["key"])) if result.get("state") == STORED else None
    digest = hashlib.sha256(body).hexdigest() if body is not None else ""
    seen = letter.failure_code if letter is not None else str(result.get("state", "nothing"))
    if seen != case.expected:
        problem = f"expected {case.expected}"
    elif case.expected == STORED and digest != site.sha256(case.path):
        problem = "the stored bytes differ from those of the site"
    elif case.expected == STORED and digest != result["sha256"]:
        problem = "the results name another digest"
    elif case.expected != STORED and result.get("state") != "failed":
        problem = "the results do not say that it failed"
    attempts = letter.attempts if letter is not None else int(result.get("attempts", 0))
    return ProofVerdict(case, seen, attempts, len(body or b""), digest, problem)
