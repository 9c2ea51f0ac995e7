"""Content codings that are cut, wrong, foreign or made to explode."""

import gzip
import hashlib
import io
import resource
import tarfile
import zlib

from tests.fetching.cases import case
from tests.fetching.origin import answer
from tests.fetching.world import World

TEXT = b"".join(b"line %d of a text that packs well\n" % number for number in range(2000))
MIB = 1024 * 1024


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@case("FC-016")
async def gzip_cut_in_good_framing(world: World) -> None:
    world.origin.on("/", answer(gzip.compress(TEXT)[:-9], "Content-Encoding: gzip"))
    outcome = await world.outcome(tries=3)
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_TRUNCATED_ENCODING"] * 3


@case("FC-018")
async def wrong_crc(world: World) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-8] ^= 1
    world.origin.on("/", answer(bytes(packed), "Content-Encoding: gzip"))
    outcome = await world.outcome()
    assert [failure.code for failure in outcome.failures] == ["DOWNLOAD_CORRUPT_ENCODING"]


@case("FC-019")
async def two_members(world: World) -> None:
    packed = gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:])
    world.origin.on("/", answer(packed, "Content-Encoding: gzip"))
    fetched = await world.fetch(hint=sha256(TEXT))
    assert fetched.checksum == "decoded"
    assert fetched.coding == "gzip"
    assert world.body() == packed


@case("FC-020")
async def plain_text_said_to_be_gzip(world: World) -> None:
    world.origin.on("/", answer(TEXT, "Content-Encoding: gzip", "Content-Type: text/plain"))
    fetched = await world.fetch()
    assert "coding_mismatch" in fetched.flags
    assert world.body() == TEXT


@case("FC-021")
async def archive_under_a_coding(world: World) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("a.txt")
        entry.size = len(TEXT)
        tar.addfile(entry, io.BytesIO(TEXT))
    packed = archive.getvalue()
    world.origin.on("/", answer(packed, "Content-Type: application/x-tar", "Content-Encoding: x-gzip"))
    fetched = await world.fetch(hint=sha256(packed))
    assert fetched.checksum == "wire"
    assert world.body() == packed


@case("FC-023")
async def bomb(world: World) -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(MIB)) for _ in range(256)) + packer.flush()
    assert len(packed) < 300 * 1024
    world.job_type().max_bytes = 10 * MIB
    world.origin.on("/", answer(packed, "Content-Encoding: gzip"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fetched = await world.fetch()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    assert fetched.size == len(packed)
    assert "coding_unverified" in fetched.flags
    assert world.body() == packed


@case("FC-026")
async def codings_unknown_and_empty(world: World) -> None:
    world.origin.on("/foo", answer(TEXT, "Content-Encoding: foo"))
    world.origin.on("/empty", answer(TEXT, "Content-Encoding: "))
    fetched = await world.fetch("/foo")
    assert fetched.coding == "foo"
    assert "coding_unknown" in fetched.flags
    assert world.metadata()["Metadata"]["coding"] == "foo"
    assert world.body() == TEXT
    assert (await world.fetch("/empty", resource_id="r2")).coding == ""
    assert world.body("r2") == TEXT
