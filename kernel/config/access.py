"""Who may reach what: tokens that would let in anybody, and servers that nobody guards. Findings name their keys."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.addresses import LISTENS, Finding, split

_TOKEN: Final = re.compile(r"[!-~]+")
_TENANT: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_TRUST: Final = "or say security.trusted_network = true, where everybody who can reach it may use it"
_NOTHING: Final = frozenset({"null", "none", "nil", "undefined", "nan", "false", "true", "[]", "{}", '""', "''"})
"""What programs write for a value that is not there."""


def checks(config: Config) -> Iterator[Finding]:
    """Every token that is none, or that stands for two callers, and every open server beyond loopback."""
    yield from _tokens(config)
    yield from _networks(config)


def is_loopback(listen: str) -> bool:
    """Whether only this machine can reach what listens there."""
    host, _ = split(listen)
    if host.rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def asks_for_credentials(config: Config) -> bool:
    """Whether the servers know their callers: by tokens, or by client certificates."""
    security = config.security
    return bool(security.operator_tokens or security.tenant_tokens or security.tls.client_ca_file)


def _tokens(config: Config) -> Iterator[Finding]:
    security = config.security
    named = [(f"security.operator_tokens[{index}]", token) for index, token in enumerate(security.operator_tokens)]
    # The token is the key of its entry, and a message for logs and terminals names no token.
    tenants = sorted(security.tenant_tokens.items(), key=lambda entry: entry[1])
    named += [("security.tenant_tokens", token) for token, _ in tenants]
    times = Counter(token for _, token in named)
    for key, token in named:
        if not _TOKEN.fullmatch(token):
            yield key, "a token is empty, or has a character that is not visible ASCII: no caller could send it"
        elif token.lower() in _NOTHING:
            yield key, f"the token {token!r} is what a template writes for no value: anybody would guess it"
        elif times[token] > 1:
            yield key, "a token is given more than once: it must stand for one operator, or for one tenant"
            times[token] = 1
    for _, tenant in tenants:
        if not _TENANT.fullmatch(tenant):
            yield "security.tenant_tokens", f"names the tenant {tenant[:128]!r}, which does not match {_TENANT.pattern}"
    if config.worker.ingest_token and not _TOKEN.fullmatch(config.worker.ingest_token):
        yield "worker.ingest_token", "has a character that is not visible ASCII: it could not be sent"


def _networks(config: Config) -> Iterator[Finding]:
    if config.security.trusted_network:
        return
    if not asks_for_credentials(config):
        for name in LISTENS:
            listen = getattr(config, name).listen
            if _is_open(listen):
                told = f"{listen} is beyond loopback, and nobody is asked who they are"
                yield f"{name}.listen", f"{told}: set security.operator_tokens or security.tls.client_ca_file, {_TRUST}"
    shown = config.observability.metrics_listen
    if shown and _is_open(shown) and not config.security.operator_tokens:
        told = f"{shown} is beyond loopback, and metrics are shown to anybody"
        yield "observability.metrics_listen", f"{told}: set security.operator_tokens, {_TRUST}"


def _is_open(listen: str) -> bool:
    try:
        return not is_loopback(listen)
    except ValueError:
        return False  # told by the checks of addresses
