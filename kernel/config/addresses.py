"""Addresses and URLs of a configuration that can never work. Each finding names its key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from fetchbox.config.v1.config_pb2 import Config
from kernel.hostname import UrlError, clean_host

Finding = tuple[str, str]
"""A key and what is wrong there."""

LISTENS: Final = ("ingest", "worker", "operator", "gateway")
"""The sections with a `listen`."""
_DIALS: Final = ("ingest", "worker", "operator", "task", "flow")
_UNFIT: Final = re.compile(r"[\s\x00-\x1f\x7f\\]")
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_RESOLVER: Final = "dns:///"
"""What gRPC may have before a name that it is to resolve again and again."""


def checks(config: Config) -> Iterator[Finding]:
    """Every address and URL that nothing can listen at, or reach."""
    found = {"redis.addr": dial_fault(config.redis.addr), "ingest.processes": _sharing_fault(config)}
    found |= {f"{name}.listen": listen_fault(getattr(config, name).listen) for name in LISTENS}
    found |= {f"gateway.{name}": dial_fault(getattr(config.gateway, name).removeprefix(_RESOLVER)) for name in _DIALS}
    found["worker.ingest"] = dial_fault(config.worker.ingest.removeprefix(_RESOLVER))
    if config.observability.metrics_listen:
        found["observability.metrics_listen"] = listen_fault(config.observability.metrics_listen)
    if config.object_store.endpoint:
        found["object_store.endpoint"] = url_fault(config.object_store.endpoint)
    if config.observability.tracing.endpoint:
        found["observability.tracing.endpoint"] = url_fault(config.observability.tracing.endpoint)
    for name, pool in config.proxies.items():
        found |= {f"proxies.{name}.urls[{index}]": proxy_fault(url) for index, url in enumerate(pool.urls)}
    for field, task in config.tasks.ListFields():
        if field.message_type is not None and field.message_type.name == "Task" and task.endpoint:
            found[f"tasks.{field.name}.endpoint"] = url_fault(task.endpoint)
    yield from ((key, fault) for key, fault in found.items() if fault)


def _sharing_fault(config: Config) -> str:
    """Why several processes cannot listen at one address; empty where they can."""
    if config.ingest.processes > 1 and config.ingest.listen.endswith(":0"):
        return "of more than one need a port in ingest.listen: with port 0 each would take another one"
    return ""


def split(address: str) -> tuple[str, int]:
    """Host, in lower case and without brackets, and port of `host:port`. ValueError where it is none."""
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise ValueError(f"must be host:port, not {address!r}")
    if "://" in address:
        raise ValueError(f"must be host:port without a scheme, not {address!r}")
    if not _PORT.fullmatch(port) or int(port) > 65_535:
        raise ValueError(f"has a port that is not 1 to 65535: {address!r}")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"must have an IPv6 address in brackets: {address!r}")
    try:
        return clean_host(host.encode()), int(port)
    except UrlError as error:
        raise ValueError(f"has no host that can be reached: {address!r}") from error


def listen_fault(address: str) -> str:
    """Why nothing can listen there; empty where it can. Port 0 takes a free one."""
    try:
        split(address)
    except ValueError as error:
        return str(error)
    return ""


def dial_fault(address: str) -> str:
    """Why nothing can be reached there; empty where it can."""
    try:
        _, port = split(address)
    except ValueError as error:
        return str(error)
    return "" if port else f"has a port that is not 1 to 65535: {address!r}"


def url_fault(url: str) -> str:
    """Why this is no http URL with a host; empty where it is one."""
    if not url.lower().startswith(("http://", "https://")):
        return "must be an http or https URL, for instance http://127.0.0.1:9000"
    if _UNFIT.search(url):
        return "must be an http or https URL, without blanks and control characters"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "must be an http or https URL with a port from 1 to 65535, or none"
    if parts.port == 0 or parts.netloc.endswith(":"):
        return "must be an http or https URL with a port from 1 to 65535, or none"
    host = parts.hostname or ""
    try:
        clean_host(f"[{host}]".encode() if ":" in host else host.encode())
    except UrlError:
        return "must be an http or https URL with a host"
    return ""


def proxy_fault(url: str) -> str:
    """Why this is no proxy; empty where it is one. What is wrong with credentials is not told: they are secret."""
    scheme, separator, rest = url.partition("://")
    place = rest.rpartition("@")[2]
    if fault := url_fault(f"{scheme}{separator}{place}"):
        return f"{fault} (http://user:password@host:port)"
    return "" if not urlsplit(f"http://{place}").path.strip("/") else "must have no path"
