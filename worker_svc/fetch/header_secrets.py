"""Secrets in what a task sends: filled in at the last moment, and only where their declarations allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from fetchbox.jobs.jobs_pb2 import DownloadTask
from kernel.config.loading import job_type
from kernel.config.secret_scopes import FETCH_HEADER, MARK, PROXY, SecretScopes, Use, pool_refusal
from kernel.config.secret_values import UnknownSecretError, with_secrets
from worker_svc.fetch.failure import failure
from worker_svc.fetch.url import Url


class HeaderSecrets:
    """The secrets of one worker: what each is, and what may use it. Direct producers are asked like everybody."""

    def __init__(self, config: Config, values: Mapping[str, str]) -> None:
        self._config = config
        self._scopes = SecretScopes(config)
        self._values = values

    def fill(self, task: DownloadTask, name: str, value: str, url: Url) -> str | None:
        """The value of a header with its secrets; None for a default header of the job type that may not go there.

        FetchFailure `AUTH_SECRET_REFUSED`, or `AUTH_SECRET_UNKNOWN` for one that this worker has no value for.
        """
        if MARK not in value:
            return value
        use = Use(FETCH_HEADER, tenant=task.tenant, job_type=task.job_type, host=url.host, port=url.port)
        if rule := self._scopes.refusal(value, use):
            if self._is_default(task, name, value):
                return None
            text = f"the header {name[:128]!r} {rule}"
            raise failure(errors_pb2.FAILURE_CODE_AUTH_SECRET_REFUSED, text, fault="task")
        try:
            return with_secrets(value, self._values)
        except UnknownSecretError as error:
            raise failure(errors_pb2.FAILURE_CODE_AUTH_SECRET_UNKNOWN, str(error), fault="task") from error

    def require_pools(self, task: DownloadTask, pools: Iterable[str]) -> None:
        """Raises FetchFailure `AUTH_SECRET_REFUSED` where a proxy has credentials that are not for this task."""
        use = Use(PROXY, tenant=task.tenant, job_type=task.job_type)
        if rule := pool_refusal(self._scopes, self._config, pools, use):
            raise failure(errors_pb2.FAILURE_CODE_AUTH_SECRET_REFUSED, rule, fault="task")

    def _is_default(self, task: DownloadTask, name: str, value: str) -> bool:
        kind = job_type(self._config, task.job_type)
        return kind is not None and (name, value) in {
            (default.lower(), text) for default, text in kind.default_headers.items()
        }
