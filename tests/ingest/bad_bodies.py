"""The table of bad submits (`bad_manifests.json`), with the bodies that are too large or too odd to be written down."""

import base64
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

LIMIT = 5_242_880
_GOOD = b'{"manifest_version":"v1","resources":[{"id":"a","url":"http://h/"}]}'


@dataclass(frozen=True)
class BadSubmit:
    """A submit and its answer."""

    name: str
    headers: dict[str, str | None]
    """None takes a header away that a client would send."""
    body: Callable[[], bytes]
    status: int
    reason: str
    fields: list[str] | None
    rules: list[str] | None
    listed: int | None


def bad_submits() -> list[BadSubmit]:
    """Every row of the table."""
    table = json.loads(Path(__file__).with_name("bad_manifests.json").read_text(encoding="utf-8"))
    return [_row(case) for case in table["cases"]]


def _row(case: dict[str, Any]) -> BadSubmit:
    headers = {"content-type": "application/json", "x-fetchbox-job-type": "default", **case.get("headers", {})}
    return BadSubmit(
        name=case["name"],
        headers=headers,
        body=_body(case),
        status=case["status"],
        reason=case["reason"],
        fields=case.get("fields"),
        rules=case.get("rules"),
        listed=case.get("listed"),
    )


def _body(case: dict[str, Any]) -> Callable[[], bytes]:
    if "text" in case:
        return case["text"].encode
    if "base64" in case:
        return lambda: base64.b64decode(case["base64"])
    if "generator" in case:
        return GENERATORS[case["generator"]]
    return lambda: json.dumps(case["json"], ensure_ascii=False).encode()


def _manifest(resources: list[Any], **more: Any) -> bytes:
    return json.dumps({"manifest_version": "v1", "resources": resources, **more}).encode()


def _one(**more: Any) -> bytes:
    return _manifest([{"id": "a", "url": "http://h/", **more}])


def sized(size: int) -> bytes:
    """A good manifest of exactly so many bytes."""
    head, tail = b'{"manifest_version":"v1","metadata":{"pad":"', b'"},"resources":[{"id":"a","url":"http://h/"}]}'
    return head + b"x" * (size - len(head) - len(tail)) + tail


def zstd(data: bytes, **options: Any) -> bytes:
    """One zstd frame."""
    return zstandard.ZstdCompressor(**options).compress(data)


def _huge_window() -> bytes:
    options = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=options).compressobj()
    return stream.compress(_GOOD) + stream.flush()


def _flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def _nested(name: str) -> bytes:
    return b'{"manifest_version":"v1","%s":%s1%s,"resources":[{"id":"a","url":"http://h/"}]}' % (
        name.encode(),
        b'{"a":' * 101,
        b"}" * 101,
    )


GENERATORS: dict[str, Callable[[], bytes]] = {
    "utf16": lambda: _GOOD.decode().encode("utf-16"),
    "depth_bomb": lambda: b'{"metadata":' + b"[" * 2_000_000 + b"]" * 2_000_000 + b"}",
    "deep_metadata": lambda: _nested("metadata"),
    "deep_attributes": lambda: _nested("attributes"),
    "long_key": lambda: _manifest([{"id": "a", "url": "http://h/"}], **{"k" * 1_000_000: 1}),
    "resources_1001": lambda: _manifest([{"id": str(n), "url": "http://h/"} for n in range(1001)]),
    "resources_150000": lambda: _manifest([{"id": str(n), "url": ""} for n in range(150_000)]),
    "long_url": lambda: _one(url="http://h/" + "a" * (16385 - 9)),
    "long_header_value": lambda: _one(headers={"Cookie": "x" * 1025}),
    "wide_header_value": lambda: _one(headers={"Cookie": "é" * 513}),
    "many_tags": lambda: _one(tags={f"t{n}": "" for n in range(51)}),
    "long_faults": lambda: _manifest(
        [{"id": str(n), "url": "http://h/", "tags": {f"{m}" * 130: "" for m in range(10)}} for n in range(20)]
    ),
    "thousand_faults": lambda: _manifest([{"id": str(n), "url": "ftp://h/"} for n in range(1000)]),
    "one_byte_too_large": lambda: sized(LIMIT + 1),
    "one_byte_too_large_gzip": lambda: gzip.compress(sized(LIMIT + 1)),
    "one_byte_too_large_zstd": lambda: zstd(sized(LIMIT + 1)),
    "gzip_bomb": lambda: gzip.compress(b"a" * 200_000_000, 9),
    "gzip_bomb_in_members": lambda: gzip.compress(b"a" * 1_000_000) * 20,
    "zstd_bomb": lambda: zstd(b"a" * 200_000_000),
    "zstd_huge_window": _huge_window,
    "gzip_of_empty_members": lambda: gzip.compress(b"") * 200_000,
    "gzip_cut_off": lambda: gzip.compress(_GOOD)[:-1],
    "gzip_second_member_cut_off": lambda: gzip.compress(_GOOD) + gzip.compress(b"   ")[:12],
    "gzip_wrong_checksum": lambda: _flipped(gzip.compress(_GOOD), -5),
    "gzip_with_garbage": lambda: gzip.compress(_GOOD) + b"garbage",
    "zstd_cut_off": lambda: zstd(_GOOD)[:-1],
    "zstd_wrong_checksum": lambda: _flipped(zstd(_GOOD, write_checksum=True), -1),
    "gzip_twice": lambda: gzip.compress(gzip.compress(_GOOD)),
}
