"""Where a configuration names secrets, and whether each place may: what is found names its key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from google.protobuf.message import Message

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.secret_scopes import (
    FETCH_HEADER,
    MARK,
    PROXY,
    TASK_ENDPOINT,
    WEBHOOK,
    HostPattern,
    SecretScopes,
    Use,
)
from kernel.hostname import UrlError, clean_host

Finding = tuple[str, str]
"""A key and what is wrong there."""

_PORTS: Final = {"http": 80, "https": 443}
_RESOLVED: Final = re.compile(
    r"job_types\.[^.]+\.default_headers\..+|proxies\..+\.urls\[\d+\]|tasks\.[a-z]+\.(api_key|headers\..+)"
    r"|flow_engine\.webhook_secrets\..+|flows\.[^.]+\.steps\.[^.]+\.with"
)
"""The keys in which references are filled in, each with rules of its own below."""
_NOT_HERE: Final = "is not resolved here, and would be taken as it is written"


def checks(config: Config) -> Iterator[Finding]:
    """Every declaration that cannot be meant, and every reference that is not allowed where it stands."""
    broken = list(_declarations(config))
    yield from broken
    if broken:
        return
    scopes = SecretScopes(config)
    for key, text in texts(config, ""):
        if MARK in text and not _RESOLVED.fullmatch(key):
            yield key, f"{MARK}…}} {_NOT_HERE}"
    yield from _default_headers(config, scopes)
    yield from _proxies(config, scopes)
    yield from _endpoints(config, scopes)
    yield from _steps(config, scopes)
    for channel, secret in config.flow_engine.webhook_secrets.items():
        if rule := scopes.refusal(secret, Use(WEBHOOK)):
            yield f"flow_engine.webhook_secrets.{channel}", rule
    for index, channel in enumerate(config.flow_engine.webhook_body_only):
        if channel not in config.flow_engine.webhook_secrets:
            yield (
                f"flow_engine.webhook_body_only[{index}]",
                f"{channel[:128]!r} is not under flow_engine.webhook_secrets",
            )


def texts(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    """Every text of a message by its path, keys of maps and free JSON among them."""
    for field, value in message.ListFields():
        key = f"{prefix}{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for name, item in value.items():
                yield f"{key}.{name}", name if isinstance(name, str) else ""
                yield from _texts_of(f"{key}.{name}", item)
        elif field.is_repeated:
            for index, item in enumerate(value):
                yield from _texts_of(f"{key}[{index}]", item)
        else:
            yield from _texts_of(key, value)


def _texts_of(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Message):
        yield from texts(value, f"{key}.")
    elif isinstance(value, str):
        yield key, value
    elif isinstance(value, bytes):
        yield key, value.decode(errors="replace")


def _declarations(config: Config) -> Iterator[Finding]:
    for name, secret in sorted(config.secrets.items()):
        key = f"secrets.{name}"
        for index, text in enumerate(secret.hosts):
            try:
                HostPattern.parse(text)
            except ValueError as error:
                yield f"{key}.hosts[{index}]", f"{text!r} {error}"
        if FETCH_HEADER in secret.uses and not secret.hosts:
            yield f"{key}.hosts", "is required for fetch_header: name the hosts that the secret may be sent to"
        known = {*config.job_types, *(field.name for field, _ in config.tasks.ListFields())}
        for index, kind in enumerate(secret.job_types):
            if kind not in known:
                yield f"{key}.job_types[{index}]", f"names {kind!r}, which is neither under [job_types] nor a task"


def _default_headers(config: Config, scopes: SecretScopes) -> Iterator[Finding]:
    for name, kind in config.job_types.items():
        for header, value in kind.default_headers.items():
            if rule := scopes.refusal(value, Use(FETCH_HEADER, job_type=name)):
                yield f"job_types.{name}.default_headers.{header}", rule


def _proxies(config: Config, scopes: SecretScopes) -> Iterator[Finding]:
    for name, pool in config.proxies.items():
        users: list[str | None] = [kind for kind, value in config.job_types.items() if name in _pools(value.proxy)]
        for index, url in enumerate(pool.urls):
            key = f"proxies.{name}.urls[{index}]"
            userinfo, at, place = url.rpartition("@")
            if MARK in (place if at else url):
                yield key, "names a secret outside of user and password; a secret may be only there"
                continue
            host, port = place_of(f"http://{place}")
            rules = (
                scopes.refusal(userinfo, Use(PROXY, job_type=kind, host=host, port=port)) for kind in users or [None]
            )
            if rule := next(filter(None, rules), ""):
                yield key, rule


def _pools(proxy: Message) -> tuple[str, ...]:
    return (proxy.primary, *proxy.fallbacks)  # type: ignore[attr-defined]  # a Proxy


def _endpoints(config: Config, scopes: SecretScopes) -> Iterator[Finding]:
    for field, task in config.tasks.ListFields():
        if field.message_type is None or field.message_type.name != "Task":
            continue
        host, port = place_of(task.endpoint)
        use = Use(TASK_ENDPOINT, job_type=field.name, host=host or None, port=port)
        named = {"api_key": task.api_key, **{f"headers.{name}": value for name, value in task.headers.items()}}
        for place, text in named.items():
            if rule := scopes.refusal(text, use):
                yield f"tasks.{field.name}.{place}", rule


def _steps(config: Config, scopes: SecretScopes) -> Iterator[Finding]:
    """The manifest of a step is a template: there `$${` is a plain `${`, which ingest will read as a reference."""
    for name, flow in config.flows.items():
        for step_key, step in flow.steps.items():
            text = getattr(step, "with").decode(errors="replace")
            key = f"flows.{name}.steps.{step_key}.with"
            if not step.job_type:
                if MARK in text:
                    yield key, f"{MARK}…}} {_NOT_HERE}"
            elif rule := scopes.refusal(text, Use(FETCH_HEADER, job_type=step.job_type)):
                yield key, rule


def place_of(url: str) -> tuple[str, int]:
    """Host and port of an http URL; an empty host where it has none that can be read."""
    try:
        parts = urlsplit(url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        return clean_host(host.encode()), parts.port or _PORTS.get(parts.scheme, 80)
    except (UrlError, ValueError):
        return "", 0
