"""The values of the secrets that a role uses, read from their sources when it starts."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fetchbox.config.v1.config_pb2 import Config, ProxyPool
from kernel.config.secret_scopes import references, replaced
from kernel.config.values import ConfigError

_LONGEST: Final = 65_536
"""Bytes of a file that is a secret."""


class UnknownSecretError(ValueError):
    """A name that this role has no value for; the text is for people."""


def read_secrets(config: Config, environ: Mapping[str, str], purposes: Collection[str]) -> dict[str, str]:
    """The value of each secret with one of these uses, by its name. `ConfigError` with every source that has none."""
    values, broken = {}, []
    for name, declared in sorted(config.secrets.items()):
        if not set(declared.uses) & set(purposes):
            continue
        try:
            values[name] = _value(declared.source, environ)
        except ValueError as error:
            broken.append((f"secrets.{name}.source", str(error)))
    if broken:
        raise ConfigError(*broken[0], more=tuple(broken[1:]))
    return values


def with_secrets(text: str, secrets: Mapping[str, str]) -> str:
    """The text with each `${secret:NAME}` filled in. UnknownSecretError."""

    def value_of(name: str) -> str:
        if name not in secrets:
            raise UnknownSecretError(f"the secret {name!r} is not known here: it is declared as [secrets.{name}]")
        return secrets[name]

    return replaced(text, value_of)


def with_proxy_secrets(pools: Mapping[str, ProxyPool], secrets: Mapping[str, str]) -> dict[str, ProxyPool]:
    """The pools with the secrets of their URLs filled in, percent-encoded, so that a value changes no host."""
    quoted = {name: quote(value, safe="") for name, value in secrets.items()}
    filled = {}
    for name, pool in pools.items():
        filled[name] = ProxyPool()
        filled[name].CopyFrom(pool)
        if any(map(references, pool.urls)):
            filled[name].urls[:] = [with_secrets(url, quoted) for url in pool.urls]
    return filled


def _value(source: str, environ: Mapping[str, str]) -> str:
    """The value of a source. ValueError where there is none."""
    kind, _, place = source.partition(":")
    value = environ.get(place) if kind == "env" else _content(place)
    if value is None:
        raise ValueError(f"{source}: the environment does not have {place}")
    if not value.strip():
        raise ValueError(f"{source}: is empty")
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in value):
        raise ValueError(f"{source}: has a line break or another control character within")
    return value


def _content(place: str) -> str:
    try:
        with Path(place).open("rb") as file:
            raw = file.read(_LONGEST + 1)
        if len(raw) > _LONGEST:
            raise ValueError(f"file:{place}: is longer than {_LONGEST} bytes")
        return raw.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise ValueError(f"file:{place}: cannot be read: {reason}") from error
