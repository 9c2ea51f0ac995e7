"""Content codings undone piece by piece: whole, cut anywhere, damaged, chained, and in bounded pieces."""

import gzip
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from worker_svc.fetch.coding import CorruptCodingError, TruncatedCodingError, codings, decoder_for


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd, "br": brotli.compress}
NAMES = st.sampled_from(sorted(PACKERS))


def decode(names: tuple[str, ...], data: bytes, step: int) -> bytes:
    decoder = decoder_for(names)
    assert decoder is not None
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


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_bytes_after_the_end_are_corrupt(name: str) -> None:
    with pytest.raises((CorruptCodingError, TruncatedCodingError)):
        decode((name,), PACKERS[name](b"some text") + b"more", 1000)


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_bombs_come_in_bounded_pieces(name: str) -> None:
    decoder = decoder_for((name,))
    assert decoder is not None
    total = 0
    for piece in decoder.feed(PACKERS[name](bytes(64 << 20))):
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
    assert decoder_for(names) is None
