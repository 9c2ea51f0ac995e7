"""What a handler is told of its task: the configuration with its secrets filled in."""

from __future__ import annotations

from collections.abc import Mapping

from fetchbox.config.v1.config_pb2 import Config, Task
from kernel.config.loading import ConfigError
from kernel.config.secret_values import UnknownSecretError, with_secrets
from kernel.durations import seconds
from kernel.handlers import TaskSettings, describe, json_object
from kernel.request_headers import may_be_sent


def settings_of(config: Config, name: str, task: Task, secrets: Mapping[str, str]) -> TaskSettings:
    """The settings of one task. `ConfigError` for a secret that is not known here, or what no header can be."""
    key = f"tasks.{name}"
    try:
        options = json_object(task.options)
    except ValueError as error:
        raise ConfigError(f"{key}.options", describe(error)) from error
    headers = {"user-agent": config.fetcher.user_agent}
    for header, value in task.headers.items():
        headers[header.lower()] = _filled(f"{key}.headers.{header}", header, value, secrets)
    silence = task.read_timeout if task.HasField("read_timeout") else config.fetcher.read_timeout
    return TaskSettings(
        task=name,
        endpoint=task.endpoint,
        model=task.model,
        api_key=_filled(f"{key}.api_key", "authorization", task.api_key, secrets),
        headers=headers,
        options=options,
        connect_timeout=seconds(config.fetcher.connect_timeout),
        read_timeout=seconds(silence),
        first_token_timeout=seconds(task.first_token_timeout) if task.HasField("first_token_timeout") else None,
        finish=task.finish or "required",
        max_retry_after=seconds(config.fetcher.max_retry_after),
        max_result_bytes=config.tasks.max_result_bytes,
    )


def _filled(key: str, header: str, value: str, secrets: Mapping[str, str]) -> str:
    try:
        filled = with_secrets(value, secrets)
    except UnknownSecretError as error:
        raise ConfigError(key, str(error)) from error
    if not may_be_sent(header, filled):
        raise ConfigError(key, "is no header field, or one that belongs to the connection")
    return filled
