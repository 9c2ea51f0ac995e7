"""What a submit may do with secrets: refused where it is written, before anything is accepted (ADR 0018)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from fetchbox.config.v1.config_pb2 import Config, JobType
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask
from ingest_svc.manifest import violation
from ingest_svc.request import refused
from kernel.config.secret_scopes import FETCH_HEADER, MARK, PROXY, SecretScopes, Use, pool_refusal, task_refusal
from kernel.config.secrets import place_of
from kernel.errors import FetchboxError, Violation, failure_name
from kernel.handlers import Resource
from kernel.validation import refusal

_RULE: Final = "secret.scope"


class SecretRules:
    """The declared secrets, asked for submits."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._scopes = SecretScopes(config)

    def require_manifest(self, resources: Iterable[Resource], tenant: str, job_type: str, settings: JobType) -> None:
        """Raises `INVALID_PAYLOAD` with each place of a manifest that names a secret which is not for it."""
        broken = list(self._manifest_faults(resources, tenant, job_type))
        pools = (settings.proxy.primary, *settings.proxy.fallbacks)
        if rule := pool_refusal(self._scopes, self._config, pools, Use(PROXY, tenant, job_type)):
            broken.append(violation("tenant", f"may not have this job type: {rule}", _RULE))
        if broken:
            raise refusal(broken)

    def require_task(self, task: str, tenant: str, place: str = "task") -> None:
        """Raises `INVALID_PAYLOAD` where the endpoint of a task has credentials that are not for the tenant."""
        if rule := task_refusal(self._scopes, self._config, task, tenant):
            raise refused(place, f"{task!r} is not for this tenant: its endpoint {rule}", _RULE)

    def require_built(self, tasks: Iterable[DownloadTask], settings: JobType) -> None:
        """Raises `INTERNAL_ERROR` where a handler's own code named a secret in a task which is not for it."""
        defaults = {(name.lower(), value) for name, value in settings.default_headers.items()}
        for task in tasks:
            for header in task.headers:
                if MARK not in header.value or (header.name, header.value) in defaults:
                    continue
                if rule := self._refusal(header.value, task.url, task.tenant, task.job_type):
                    text = (
                        f"the handler's task {task.resource_id[:128]!r} has a header {header.name[:128]!r} which {rule}"
                    )
                    code = failure_name(errors_pb2.FAILURE_CODE_HANDLER_ERROR)
                    raise FetchboxError(errors_pb2.REASON_INTERNAL_ERROR, text, metadata={"failure_code": code})

    def _manifest_faults(self, resources: Iterable[Resource], tenant: str, job_type: str) -> Iterator[Violation]:
        for index, resource in enumerate(resources):
            if MARK in resource.url:
                yield violation(f"resources[{index}].url", "names a secret, which only headers may", _RULE)
            for name, value in resource.headers.items():
                if MARK in value and (rule := self._refusal(value, resource.url, tenant, job_type)):
                    yield violation(f"resources[{index}].headers.{name}", rule, _RULE)

    def _refusal(self, value: str, url: str, tenant: str, job_type: str) -> str:
        host, port = place_of(url)
        return self._scopes.refusal(value, Use(FETCH_HEADER, tenant, job_type, host, port))
