"""Content codings undone piece by piece: whole, cut anywhere, damaged, chained, and in bounded pieces."""

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fetchbox.errors.v1 import errors_pb2
from kernel.errors import failure_name
from worker_svc.fetch.checksum import Digests
from worker_svc.fetch.coding import (
    FREE_WORK,
    MOST_EXPANSION,
    CorruptCodingError,
    Decoder,
    DecodingWork,
    ExpansionError,
    TruncatedCodingError,
    codings,
    decoder_for,
)
from worker_svc.fetch.failure import FetchFailure
from worker_svc.fetch.inspection import Inspection


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd, "br": brotli.compress}
NAMES = st.sampled_from(sorted(PACKERS))


def decoding(names: tuple[str, ...], size: int) -> tuple[Decoder, DecodingWork]:
    """What undoes a body of `size` bytes, and the work that they allow."""
    work = DecodingWork()
    work.allow(size)
    decoder = decoder_for(names, work)
    assert decoder is not None
    return decoder, work


def decode(names: tuple[str, ...], data: bytes, step: int) -> bytes:
    decoder, _ = decoding(names, len(data))
    out = [piece for start in range(0, len(data), step) for piece in decoder.feed(data[start : start + step])]
    decoder.finish()
    return b"".join(out)


@given(NAMES, st.binary(min_size=1, max_size=5000), st.integers(1, 700))
def test_whole_content_comes_back_however_it_is_cut_into_chunks(name: str, data: bytes, step: int) -> None:
    assert decode((name,), PACKERS[name](data), step) == data


@given(NAMES, st.binary(min_size=1, max_size=2000), st.data())
def test_every_cut_is_noticed(name: str, data: bytes, draw: st.DataObject) -> None:
    packed = PACKERS[name](data)
    cut = packed[: draw.draw(st.integers(1, len(packed) - 1))]
    with pytest.raises(TruncatedCodingError):
        decode((name,), cut, 64)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 50))
def test_members_and_frames_are_joined(parts: list[bytes], step: int) -> None:
    whole = b"".join(parts)
    assert decode(("x-gzip",), b"".join(map(gzip.compress, parts)), step) == whole
    assert decode(("gzip",), b"".join(map(gzip.compress, parts)) + bytes(512), step) == whole
    assert decode(("zstd",), b"".join(map(zstd, parts)), step) == whole


@given(st.binary(min_size=1, max_size=2000))
def test_deflate_without_its_wrapper(data: bytes) -> None:
    assert decode(("deflate",), bare_deflate(data), 10) == data


@given(NAMES, NAMES, st.binary(min_size=1, max_size=1000))
def test_codings_on_top_of_each_other(first: str, second: str, data: bytes) -> None:
    assert decode((first, second), PACKERS[second](PACKERS[first](data)), 100) == data


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_wrong_checksum_is_corrupt(name: str) -> None:
    packed = bytearray(PACKERS[name](b"some text"))
    packed[-1 if name == "deflate" else -5] ^= 0x55
    with pytest.raises(CorruptCodingError):
        decode((name,), bytes(packed), 1000)


@pytest.mark.parametrize("name", ["br", "zstd"])
def test_bytes_after_the_end_are_corrupt(name: str) -> None:
    with pytest.raises((CorruptCodingError, TruncatedCodingError)):
        decode((name,), PACKERS[name](b"some text") + b"more", 1000)


@given(st.sampled_from(["gzip", "deflate"]), st.binary(min_size=1, max_size=5000), st.integers(1, 99))
def test_bytes_after_the_end_are_passed_over_as_browsers_do(name: str, surplus: bytes, step: int) -> None:
    if name == "gzip" and surplus.startswith(b"\x1f\x8b"):
        surplus = b"x" + surplus
    packed = PACKERS[name](b"some text") + surplus
    decoder, _ = decoding((name,), len(packed))
    pieces = [piece for at in range(0, len(packed), step) for piece in decoder.feed(packed[at : at + step])]
    decoder.finish()
    assert b"".join(pieces) == b"some text"
    assert decoder.surplus == (name == "deflate" or bool(surplus.strip(b"\0")))


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_bombs_come_in_bounded_pieces(name: str) -> None:
    packed = PACKERS[name](bytes(64 << 20))
    work = DecodingWork()
    work.allow(1 << 20)
    decoder = decoder_for((name,), work)
    assert decoder is not None
    total = 0
    for piece in decoder.feed(packed):
        assert len(piece) <= 16 << 20
        total += len(piece)
    assert total == 64 << 20


@pytest.mark.parametrize(
    ("value", "names"),
    [("", ()), ("identity", ()), ("GZip , br", ("gzip", "br")), (" , ,", ()), ("foo", ("foo",))],
)
def test_names(value: str, names: tuple[str, ...]) -> None:
    assert codings(value) == names


@pytest.mark.parametrize("names", [(), ("foo",), ("gzip", "foo"), ("gzip",) * 5])
def test_what_is_not_known_is_not_verified(names: tuple[str, ...]) -> None:
    assert decoder_for(names, DecodingWork()) is None


def nested(names: tuple[str, ...], size: int) -> bytes:
    """Zeros under codings on top of each other."""
    data = bytes(size)
    for name in names:
        data = PACKERS[name](data)
    return data


def cost(names: tuple[str, ...], packed: bytes) -> tuple[int, int]:
    """The work that a body makes, and the pieces, until it is undone or given up."""
    decoder, work = decoding(names, len(packed))
    pieces = 0
    try:
        for _ in decoder.feed(packed):
            pieces += 1
    except ExpansionError:
        pass
    return work.done, pieces


HOSTILE = [
    *((name,) for name in sorted(PACKERS)),
    *((first, second) for first in sorted(PACKERS) for second in sorted(PACKERS)),
    ("gzip", "gzip", "gzip"),
    ("br", "zstd", "gzip", "deflate"),
    ("zstd", "zstd", "zstd", "zstd"),
]


@pytest.mark.parametrize("names", HOSTILE, ids=".".join)
def test_no_body_makes_more_work_than_its_size_allows_at_any_stage(names: tuple[str, ...]) -> None:
    for size in (4 << 20, 24 << 20):
        packed = nested(names, size)
        done, pieces = cost(names, packed)
        allowed = FREE_WORK + MOST_EXPANSION * len(packed)
        assert done <= allowed + (8 << 20)  # one step more: of zstd at most 8 MiB
        assert pieces <= 100 + 4 * len(names) * allowed / 256


@pytest.mark.parametrize(("name", "part"), [("gzip", gzip.compress(b"")), ("zstd", zstd(b""))], ids=["gzip", "zstd"])
@pytest.mark.parametrize("outer", ["gzip", "deflate", "zstd", "br"])
def test_members_and_frames_are_work_too(name: str, part: bytes, outer: str) -> None:
    packed = PACKERS[outer](part * 500_000)
    done, _ = cost((name, outer), packed)
    allowed = FREE_WORK + MOST_EXPANSION * len(packed)
    assert done <= allowed + (8 << 20)
    assert allowed < 4096 * 500_000, "the parts alone are more than is allowed"


def test_a_stage_that_makes_nothing_lets_others_go_on_all_the_same() -> None:
    decoder, work = decoding(("gzip",), 1 << 20)
    before = 0
    for _ in decoder.feed(gzip.compress(b"") * 5_000):
        assert work.done - before <= 4096 * (4096 // 20 + 1)
        before = work.done


async def inspected(names: tuple[str, ...], packed: bytes) -> Inspection:
    inspection = Inspection(", ".join(names), "", Digests(None), 5 << 30)
    await inspection.take(packed)
    return inspection


async def test_a_small_body_of_nested_codings_is_given_up_as_unverified() -> None:
    names = ("gzip", "gzip", "gzip")
    packed = nested(names, 256 << 20)
    assert len(packed) < 2_000
    inspection = await inspected(names, packed)
    assert inspection.flags == ["coding_unverified"]
    assert not inspection.decoded


@pytest.mark.parametrize("names", HOSTILE, ids=".".join)
async def test_what_people_pack_is_verified(names: tuple[str, ...]) -> None:
    data = b"".join(b'{"id": %d, "state": "completed", "size": 1024}\n' % number for number in range(10_000))
    packed = data
    for name in names:
        packed = PACKERS[name](packed)
    inspection = await inspected(names, packed)
    inspection.finish()
    assert inspection.flags == []
    assert inspection.decoded


async def test_zeros_under_gzip_alone_are_verified_however_many() -> None:
    inspection = await inspected(("gzip",), nested(("gzip",), 64 << 20))
    inspection.finish()
    assert inspection.flags == []


async def test_what_a_thread_finds_corrupt_is_told() -> None:
    packed = bytearray(gzip.compress(bytes(8 << 20)))
    packed[-5] ^= 0x55
    with pytest.raises(FetchFailure) as caught:
        await inspected(("gzip",), bytes(packed))
    assert caught.value.code == failure_name(errors_pb2.FAILURE_CODE_DOWNLOAD_CORRUPT_ENCODING)


PLAIN = {
    "text": b"some plain text, which no server has packed\n" * 40,
    "short": b"ok",
    "xml": b"<?xml version='1.0'?><a/>",
    "zlib-like": b"x^2 + y^2 = z^2, as they say" * 9,
    "other-zlib-like": b"hC" + b" is no method\n" * 300,
    "utf-8": "déjà vu ".encode() * 90,
    "png": b"\x89PNG\r\n\x1a\n" + bytes(900),
    "jpeg": b"\xff\xd8\xff\xe0" + bytes(range(256)) * 3,
}


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br", "deflate, gzip", "x-gzip"])
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("step", [1, 700, 10_000])
async def test_a_body_that_never_was_packed_is_taken_as_it_is(coding: str, name: str, step: int) -> None:
    body = PLAIN[name]
    inspection = Inspection(coding, "", Digests(None), 1 << 20)
    for at in range(0, len(body), step):
        await inspection.take(body[at : at + step])
    inspection.finish()
    assert inspection.flags == ["coding_mismatch"]
    assert inspection.sniffed == {"xml": "text/xml", "png": "image/png", "jpeg": "image/jpeg"}.get(name, "")
    assert not inspection.decoded


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "br"])
async def test_a_body_that_was_packed_and_is_cut_is_not_taken_for_another(coding: str) -> None:
    packed = PACKERS[coding](b"some plain text that a server has packed\n" * 90)
    inspection = Inspection(coding, "", Digests(None), 1 << 20)
    await inspection.take(packed[:-2])
    with pytest.raises(FetchFailure, match="DOWNLOAD_TRUNCATED_ENCODING"):
        inspection.finish()


async def test_what_follows_the_end_is_flagged() -> None:
    inspection = Inspection("gzip", "", Digests(None), 1 << 20)
    await inspection.take(gzip.compress(b"data") + b"<!-- served by cache 7 -->")
    inspection.finish()
    assert inspection.flags == ["coding_surplus"]
    assert inspection.decoded
