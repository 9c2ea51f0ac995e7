"""Files and directories that a configuration names, looked at on the machine where it is to hold."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from fetchbox.config.v1.config_pb2 import Config
from kernel.config.addresses import Finding
from kernel.config.values import ConfigError


def require_files(config: Config) -> None:
    """Raises `ConfigError` with every key whose file cannot be read, or is not what it must be."""
    broken = [*_tls(config), *_directories(config)]
    if broken:
        raise ConfigError(*broken[0], more=tuple(broken[1:]))


def _tls(config: Config) -> Iterator[Finding]:
    tls = config.security.tls
    named = {"cert_file": tls.cert_file, "key_file": tls.key_file, "client_ca_file": tls.client_ca_file}
    found = {f"security.tls.{name}": place for name, place in named.items() if place}
    if config.redis.tls and config.redis.tls_ca_file:
        found["redis.tls_ca_file"] = config.redis.tls_ca_file
    faults = [(key, fault) for key, place in found.items() if (fault := _unreadable(place))]
    yield from faults
    if faults:
        return
    for key, place in found.items():
        if key.endswith("ca_file") and not _is_authority(place):
            yield key, f"{place}: holds no certificate in PEM"
    if tls.cert_file and not _is_pair(tls.cert_file, tls.key_file):
        yield "security.tls", f"{tls.cert_file} and {tls.key_file} are no certificate in PEM and its key"


def _unreadable(place: str) -> str:
    try:
        with Path(place).open("rb") as file:
            file.read(1)
    except OSError as error:
        return f"{place}: cannot be read: {error.strerror}"
    return ""


def _is_authority(place: str) -> bool:
    try:
        return bool(ssl.create_default_context(cafile=place).get_ca_certs())
    except (ssl.SSLError, OSError, ValueError):
        return False


def _is_pair(cert_file: str, key_file: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key with a passphrase cannot be used: nobody is there to be asked for it.
        context.load_cert_chain(cert_file, key_file, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError):
        return False
    return True


def _directories(config: Config) -> Iterator[Finding]:
    found = {"producer.scan_dir": config.producer.scan_dir, "flow_engine.archive_dir": config.flow_engine.archive_dir}
    found |= {f"worker.file_roots[{index}]": root for index, root in enumerate(config.worker.file_roots)}
    for key, place in found.items():
        try:
            is_wrong = bool(place) and Path(place).exists() and not Path(place).is_dir()
        except OSError as error:
            yield key, f"{place}: cannot be looked at: {error.strerror}"
        else:
            if is_wrong:
                yield key, f"{place}: is no directory"
