"""Who may use a secret, as its declaration says: `[secrets.NAME]` (ADR 0018).

`${secret:NAME}` names a secret in a text. A text is looked at where it is written (the configuration at start, a
manifest at submit) and once more before it is sent; both ask `SecretScopes`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from fetchbox.config.v1.config_pb2 import Config, Secret, Task
from kernel.hostname import UrlError, clean_host

FETCH_HEADER: Final = "fetch_header"
PROXY: Final = "proxy"
TASK_ENDPOINT: Final = "task_endpoint"
WEBHOOK: Final = "webhook"

MARK: Final = "${secret:"
"""What every reference begins with."""
_REFERENCE: Final = re.compile(r"\$\{secret:([A-Za-z0-9_-]{1,128})\}")
_SHOWN: Final = 128
_PORT: Final = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Use:
    """What a text is for. None: not known where it is looked at, and so not looked at."""

    purpose: str
    tenant: str | None = None
    job_type: str | None = None
    host: str | None = None
    """As `clean_host` gives it."""
    port: int = 0


@dataclass(frozen=True, slots=True)
class HostPattern:
    """One entry of `secrets.NAME.hosts`."""

    name: str
    port: int
    below: bool
    """Whether it stands for the names below its own."""

    @classmethod
    def parse(cls, text: str) -> "HostPattern":
        """The pattern in a text. ValueError for none."""
        below = text.startswith("*.")
        place = text[2:] if below else text
        bracketed = place.startswith("[")
        host, colon, port = place.rpartition(":") if place.rfind(":") > place.rfind("]") else (place, "", "")
        if not bracketed and ":" in host:
            host, colon, port = f"[{place}]", "", ""  # an IPv6 address without its brackets
        if colon and (not _PORT.fullmatch(port) or not 1 <= int(port) <= 65_535):
            raise ValueError("has a port that is not 1 to 65535")
        try:
            name = clean_host(host.encode()).rstrip(".")
        except UrlError as error:
            raise ValueError(f"is no host: {error}") from error
        return cls(name, int(port) if colon else 0, below)

    def fits(self, host: str, port: int) -> bool:
        """Whether it names this place."""
        host = host.rstrip(".")
        named = host.endswith(f".{self.name}") if self.below else host == self.name
        return named and self.port in {0, port}


@dataclass(frozen=True, slots=True)
class _Scope:
    uses: frozenset[str]
    tenants: frozenset[str]
    job_types: frozenset[str]
    hosts: tuple[HostPattern, ...]

    @classmethod
    def of(cls, declared: Secret) -> "_Scope":
        hosts = tuple(map(HostPattern.parse, declared.hosts))
        return cls(frozenset(declared.uses), frozenset(declared.tenants), frozenset(declared.job_types), hosts)

    def refusal(self, use: Use) -> str:
        """Which part of the declaration a use does not fit; empty for none."""
        if use.purpose not in self.uses:
            return f"its uses do not have {use.purpose!r}"
        if use.purpose == WEBHOOK:
            return ""
        if use.tenant is not None and self.tenants and use.tenant not in self.tenants:
            return (
                f"its tenants do not have {use.tenant!r}" if use.tenant else "its tenants are named, and here is none"
            )
        if use.job_type is not None and self.job_types and use.job_type not in self.job_types:
            return f"its job_types do not have {use.job_type!r}"
        return self._host_refusal(use)

    def _host_refusal(self, use: Use) -> str:
        if use.host is None or any(pattern.fits(use.host, use.port) for pattern in self.hosts):
            return ""
        if not self.hosts and use.purpose != FETCH_HEADER:
            return ""
        return f"its hosts do not have {use.host}:{use.port}"


class SecretScopes:
    """The declared secrets of a configuration, without their values."""

    def __init__(self, config: Config) -> None:
        self._scopes = {name: _Scope.of(declared) for name, declared in config.secrets.items()}
        self.any_for_tenants = any(declared.tenants for declared in config.secrets.values())
        """Whether a secret is for some tenants only."""

    def refusal(self, text: str, use: Use) -> str:
        """Why a text may not name the secrets that it names; empty where it may, or names none."""
        if MARK not in text:
            return ""
        if is_torn(text):
            return "has `${secret:` without a name and a brace behind it"
        reasons = (self._name_refusal(name, use) for name in references(text))
        return next(filter(None, reasons), "")

    def _name_refusal(self, name: str, use: Use) -> str:
        scope = self._scopes.get(name)
        reason = scope.refusal(use) if scope else "it is not declared in the configuration"
        return f"may not name the secret {name[:_SHOWN]!r}: {reason}" if reason else ""


def references(text: str) -> list[str]:
    """The names of the secrets that a text names."""
    return _REFERENCE.findall(text)


def is_torn(text: str) -> bool:
    """Whether a text has the beginning of a reference that is none."""
    return MARK in _REFERENCE.sub("", text)


def replaced(text: str, value_of: Callable[[str], str]) -> str:
    """The text, each reference replaced by what is given for its name."""
    return _REFERENCE.sub(lambda match: value_of(match[1]), text)


def first_refusal(scopes: SecretScopes, texts: Iterable[str], use: Use) -> str:
    """The refusal of the first text that has one; empty for none."""
    return next(filter(None, (scopes.refusal(text, use) for text in texts)), "")


def pool_refusal(scopes: SecretScopes, config: Config, pools: Iterable[str], use: Use) -> str:
    """Why these proxy pools may not be used so, with the pool's name; empty where they may."""
    for name in pools:
        if name in config.proxies and (rule := first_refusal(scopes, config.proxies[name].urls, use)):
            return f"the proxy pool {name[:_SHOWN]!r} {rule}"
    return ""


def task_refusal(scopes: SecretScopes, config: Config, task: str, tenant: str) -> str:
    """Why a tenant may not have a task: its endpoint's credentials are those of others. Empty where it may."""
    if not scopes.any_for_tenants or not config.tasks.HasField(task):  # type: ignore[arg-type]  # the stubs want literals
        return ""
    found: Task = getattr(config.tasks, task)
    return first_refusal(scopes, (found.api_key, *found.headers.values()), Use(TASK_ENDPOINT, tenant, task))
