"""What a webhook brings: its payload, and the secret that shows whose it is."""

from collections.abc import Mapping

import orjson
from google.api.httpbody_pb2 import HttpBody

from fetchbox.config.v1.config_pb2 import Config
from fetchbox.errors.v1 import errors_pb2
from ingest_svc.request import Headers, refused
from ingest_svc.strict_json import JsonError, read_value
from kernel.config.loading import ConfigError
from kernel.config.secret_values import UnknownSecretError, with_secrets
from kernel.decompress import decompress
from kernel.errors import FetchboxError, Violation

SECRET_HEADER = "x-fetchbox-secret"  # noqa: S105  # the name of a header
"""The header that may carry the secret of a gate; a query is seen by more eyes."""
_JSON = ("application/json", "text/json")


def channel_secrets(config: Config, secrets: Mapping[str, str]) -> dict[str, str]:
    """`flow_engine.webhook_secrets`, what they name filled in. `ConfigError` for one that is not known, or empty."""
    filled = {}
    for channel, secret in config.flow_engine.webhook_secrets.items():
        key = f"flow_engine.webhook_secrets.{channel}"
        try:
            filled[channel] = with_secrets(secret, secrets)
        except UnknownSecretError as error:
            raise ConfigError(key, str(error)) from error
        if not filled[channel]:
            raise ConfigError(key, "is empty, and so anybody could sign with it")
    return filled


def secret_of(named: str, headers: Headers) -> str:
    """The secret that a request names, or its header does; empty for none. `INVALID_PAYLOAD` where they differ."""
    sent = headers.get(SECRET_HEADER)
    if sent is not None and named and sent != named:
        raise refused("secret", f"is another one than that of the header {SECRET_HEADER}", "header.differs")
    return named or sent or ""


def payload_of(body: HttpBody, coding: str, most: int) -> bytes | None:
    """The payload of a release: JSON as it is, other text as a JSON string, None for an empty body.

    `coding`: how it is compressed. `PAYLOAD_TOO_LARGE` where more than `most` bytes come out; `INVALID_PAYLOAD` for
    JSON that is none, `UNSUPPORTED_MEDIA_TYPE` for what is no text in UTF-8.
    """
    data = decompress(body.data, coding, most) if body.data else b""
    if not data:
        return None
    media_type = body.content_type.partition(";")[0].strip().lower()
    if media_type in _JSON or media_type.endswith("+json"):
        require_json(data, "body")
        return data
    try:
        return orjson.dumps(data.decode())
    except UnicodeDecodeError as error:
        raise FetchboxError(
            errors_pb2.REASON_UNSUPPORTED_MEDIA_TYPE,
            "the body is neither JSON nor text in UTF-8; send one of those, or where the data lies",
            (Violation("body", "must be JSON, or text in UTF-8", "content_type"),),
        ) from error


def require_json(text: bytes, name: str) -> None:
    """Raises `INVALID_PAYLOAD` for anything but a JSON value in which nothing is doubtful."""
    try:
        read_value(text, name)
    except JsonError as fault:
        raise refused(fault.path, fault.description, fault.rule) from fault


def require_room(size: int, most: int, name: str) -> None:
    """Raises `PAYLOAD_TOO_LARGE` for more than `most` bytes."""
    if size > most:
        raise FetchboxError(
            errors_pb2.REASON_PAYLOAD_TOO_LARGE,
            f"{name}: has {size} bytes, and at most {most} are allowed",
            (Violation(name, f"must have at most {most} bytes", "bytes.max_len"),),
        )
